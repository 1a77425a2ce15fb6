// An OpenID Connect provider for tests, certified as one (npm's oidc-provider): whoever types a name is that person, of the groups that PEOPLE says.
// Takes a port of 127.0.0.1, the address to come back to, and how it differs from the usual, if it does. Prints a line when it listens.
import { Provider } from "oidc-provider";

const [port, back, mode = ""] = process.argv.slice(2);
const PEOPLE = {
  ann: { email: "Ann@example.com", email_verified: true, groups: ["gtm-admins", "all"] },
  bob: { email: "bob@example.com", email_verified: true, groups: ["gtm-viewers"] },
  eve: { email: "ann@example.com", email_verified: false, groups: ["gtm-fence"] },
  nobody: { email: "nobody@example.com", email_verified: true, groups: [] },
};
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "gtm",
    client_secret: "s3cret: of/gtm",
    redirect_uris: [back],
    token_endpoint_auth_method: mode === "post" ? "client_secret_post" : "client_secret_basic",
  }],
  clientAuthMethods: mode === "post" ? ["client_secret_post"] : ["client_secret_basic"],
  pkce: { required: () => true },
  scopes: ["openid", "groups", "offline_access"],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  conformIdTokenClaims: mode !== "inside",
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: id, ...PEOPLE[id] }) }),
  cookies: { keys: ["tests"] },
  features: { devInteractions: { enabled: true } },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
