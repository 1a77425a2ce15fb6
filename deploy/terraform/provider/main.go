// The Terraform provider of gtm.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"runtime/debug"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"terraform-provider-gtm/internal/provider"
)

// version is set when a release is built.
var version = "dev"

// collectAt is how much garbage there may be for each byte in use, in per cent, before it is collected. Little is in use, and with Go's 100
// collecting it was over a quarter of what the provider took of a plan without changes.
const collectAt = 400

// quiet keeps the framework from writing down all that it does, unless Terraform keeps a log. It would write dozens of lines for each
// resource, and Terraform parse each of them before it throws it away: a fifth of what both took of a plan without changes.
func quiet() {
	for _, kept := range []string{"TF_LOG", "TF_LOG_PROVIDER", "TF_LOG_SDK"} {
		if os.Getenv(kept) != "" {
			return
		}
	}
	if err := os.Setenv("TF_LOG_SDK", "ERROR"); err != nil {
		log.Print(err) // it is only slower
	}
}

func main() {
	quiet()
	debug.SetGCPercent(collectAt)
	attach := flag.Bool("debug", false, "run for a debugger: print what Terraform needs to attach to this process")
	flag.Parse()
	options := providerserver.ServeOpts{Address: "registry.terraform.io/gtm/gtm", Debug: *attach, ProtocolVersion: 6}
	if err := providerserver.Serve(context.Background(), provider.New(version), options); err != nil {
		log.Fatal(err)
	}
}
