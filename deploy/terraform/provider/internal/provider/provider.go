// Package provider is what Terraform sees of gtm.
package provider

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

// Shared is what all resources of one provider block use.
type Shared struct {
	Client *client.Client
	Shelf  *client.Shelf
	Writer *client.Writer
}

type gtmProvider struct{ version string }

// New makes the provider, as the framework wants it.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &gtmProvider{version} }
}

type model struct {
	Endpoint         types.String `tfsdk:"endpoint"`
	Token            types.String `tfsdk:"token"`
	CAFile           types.String `tfsdk:"ca_file"`
	Insecure         types.Bool   `tfsdk:"insecure"`
	Workspace        types.String `tfsdk:"workspace"`
	Comment          types.String `tfsdk:"comment"`
	AllowFenceChange types.String `tfsdk:"allow_fence_change"`
}

func (p *gtmProvider) Metadata(_ context.Context, _ provider.MetadataRequest, response *provider.MetadataResponse) {
	response.TypeName, response.Version = "gtm", p.version
}

func (p *gtmProvider) Schema(_ context.Context, _ provider.SchemaRequest, response *provider.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "Which region serves which request, as code: regions, services and residency rules of a [gtm](https://github.com/gtm/gtm) control.",
		Attributes: map[string]schema.Attribute{
			"endpoint":           schema.StringAttribute{Optional: true, MarkdownDescription: "Control's address, such as `https://gtm.example.com`; left out: `GTM_CONTROL_URL`."},
			"token":              schema.StringAttribute{Optional: true, Sensitive: true, MarkdownDescription: "A token of role `operator` (to plan alone: `viewer`); left out: `GTM_TOKEN`, where it is not written down."},
			"ca_file":            schema.StringAttribute{Optional: true, MarkdownDescription: "Certificates (PEM) that count besides the system's, such as a private CA's; left out: `GTM_CA_FILE`."},
			"insecure":           schema.BoolAttribute{Optional: true, MarkdownDescription: "Send the token over http to another machine, where the network between is your own. Default: `false`."},
			"workspace":          schema.StringAttribute{Optional: true, MarkdownDescription: "What manages these resources is called `terraform/` and this: two workspaces of different names cannot own one resource. Left out: `TF_WORKSPACE`, or `default`."},
			"comment":            schema.StringAttribute{Optional: true, MarkdownDescription: "Kept with every revision that this makes; left out: the run, as far as the environment tells it."},
			"allow_fence_change": schema.StringAttribute{Optional: true, MarkdownDescription: "Why a change may be made that lets requests go where a residency rule kept them from; without, such a change fails. Kept with the revision; remove it again."},
		},
	}
}

func (p *gtmProvider) Configure(ctx context.Context, request provider.ConfigureRequest, response *provider.ConfigureResponse) {
	var given model
	response.Diagnostics.Append(request.Config.Get(ctx, &given)...)
	for name, value := range map[string]interface{ IsUnknown() bool }{"endpoint": given.Endpoint, "token": given.Token} {
		if value.IsUnknown() {
			response.Diagnostics.AddAttributeError(path.Root(name), "Not known yet", fmt.Sprintf("`%s` is only known after apply: give it as a variable, or apply what makes it first (-target).", name))
		}
	}
	if response.Diagnostics.HasError() {
		return
	}
	workspace := or(given.Workspace, "TF_WORKSPACE", "default")
	made, err := client.New(client.Options{
		Endpoint:  or(given.Endpoint, "GTM_CONTROL_URL", "http://127.0.0.1:8080"),
		Token:     or(given.Token, "GTM_TOKEN", ""),
		CAFile:    or(given.CAFile, "GTM_CA_FILE", ""),
		Insecure:  given.Insecure.ValueBool() || os.Getenv("GTM_INSECURE_CONTROL") == "true",
		ManagedBy: "terraform/" + workspace,
		Agent:     "terraform-provider-gtm/" + p.version,
	})
	if err != nil {
		response.Diagnostics.AddError("gtm's provider is not set up", err.Error())
		return
	}
	shelf := client.NewShelf(made)
	force := client.Force{Reason: given.AllowFenceChange.ValueString()}
	shared := &Shared{made, shelf, client.NewWriter(made, shelf, force, comment(given.Comment.ValueString(), workspace))}
	response.ResourceData, response.DataSourceData = shared, shared
}

func (p *gtmProvider) Resources(context.Context) []func() resource.Resource {
	var found []func() resource.Resource
	for _, kind := range spec.Kinds() {
		found = append(found, func() resource.Resource { return &kindResource{kind: kind} })
	}
	return found
}

func (p *gtmProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

// or is what is configured, else what the environment says, else something that does for most.
func or(given types.String, variable, otherwise string) string {
	if !given.IsNull() {
		return given.ValueString()
	}
	if found := os.Getenv(variable); found != "" {
		return found
	}
	return otherwise
}

// comment says which workspace and run has made a change, as far as that is known.
func comment(given, workspace string) string {
	said := "terraform workspace " + workspace
	for _, variable := range []string{"TFC_RUN_ID", "ATLANTIS_PULL_NUM", "GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILD_ID"} {
		if run := os.Getenv(variable); run != "" {
			said += fmt.Sprintf(", run %s (%s)", run, variable)
			break
		}
	}
	if given != "" {
		said = given + "; " + said
	}
	return said
}

func sharedOf(data any, diagnostics *diag.Diagnostics) *Shared {
	if data == nil {
		return nil // the provider is not configured yet
	}
	shared, ok := data.(*Shared)
	if !ok {
		diagnostics.AddError("This is a bug in gtm's provider", fmt.Sprintf("its data is a %T", data))
	}
	return shared
}
