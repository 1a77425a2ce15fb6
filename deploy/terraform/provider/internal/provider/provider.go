// Package provider is what Terraform sees of gtm.
package provider

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

// Shared is what all resources of one provider block use.
type Shared struct {
	Client *client.Client
	Shelf  *client.Shelf
	Writer *client.Writer
	Gather *Gather
	Sync   *Sync
	// Manager is what the resources of this workspace are managed by.
	Manager string
	Comment string
	Force   client.Force
	// created are the resources that this run has made.
	created sync.Map
}

type gtmProvider struct{ version string }

// New makes the provider, as the framework wants it.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &gtmProvider{version} }
}

type model struct {
	Endpoint         types.String  `tfsdk:"endpoint"`
	Token            types.String  `tfsdk:"token"`
	CAFile           types.String  `tfsdk:"ca_file"`
	Insecure         types.Bool    `tfsdk:"insecure"`
	Workspace        types.String  `tfsdk:"workspace"`
	Comment          types.String  `tfsdk:"comment"`
	Timeout          types.String  `tfsdk:"timeout"`
	AllowFenceChange types.String  `tfsdk:"allow_fence_change"`
	AllowDisruption  types.String  `tfsdk:"allow_disruption"`
	TakeOver         types.String  `tfsdk:"take_over"`
	WaitForSync      types.Dynamic `tfsdk:"wait_for_sync"`
}

func (p *gtmProvider) Metadata(_ context.Context, _ provider.MetadataRequest, response *provider.MetadataResponse) {
	response.TypeName, response.Version = "gtm", p.version
}

func (p *gtmProvider) Schema(_ context.Context, _ provider.SchemaRequest, response *provider.SchemaResponse) {
	waits := syncAttribute("After a change, wait until edges have it. Those that do not within the time are named in a warning: the change is made all the same. To fail instead, ask `gtm_revision` for it.")
	response.Schema = schema.Schema{
		MarkdownDescription: "Which region serves which request, as code: regions, services and residency rules of a gtm control.",
		Attributes: map[string]schema.Attribute{
			"endpoint":           schema.StringAttribute{Optional: true, MarkdownDescription: "Control's address, such as `https://gtm.example.com`; left out: `GTM_CONTROL_URL`."},
			"token":              schema.StringAttribute{Optional: true, Sensitive: true, MarkdownDescription: "A token of role `operator` (to plan alone: `viewer`); left out: `GTM_TOKEN`, where it is not written down."},
			"ca_file":            schema.StringAttribute{Optional: true, MarkdownDescription: "Certificates (PEM) that count besides the system's, such as a private CA's; left out: `GTM_CA_FILE`."},
			"insecure":           schema.BoolAttribute{Optional: true, MarkdownDescription: "Send the token over http to another machine, where the network between is your own. Default: `false`."},
			"workspace":          schema.StringAttribute{Optional: true, MarkdownDescription: "What manages these resources is called `terraform/` and this: two workspaces of different names cannot own one resource. Left out: `TF_WORKSPACE`, or `default`."},
			"comment":            schema.StringAttribute{Optional: true, MarkdownDescription: "Kept with every revision that this makes; left out: the run, as far as the environment tells it."},
			"timeout":            schema.StringAttribute{Optional: true, MarkdownDescription: "How long a call of control may take, with all its tries, such as `2m`. Default: `60s`."},
			"allow_fence_change": schema.StringAttribute{Optional: true, MarkdownDescription: "Why a change may be made that lets requests go where a residency rule kept them from, or that deletes a zone or much at once; without, such a plan fails. It takes a token of role `fence-admin`, is kept with the revision, and is to be removed again."},
			"allow_disruption":   schema.StringAttribute{Optional: true, MarkdownDescription: "Why a change may be made that moves much of the present traffic at once, or leaves clients without a region or capacity; without, control refuses it. Kept with the revision; remove it again."},
			"take_over":          schema.StringAttribute{Optional: true, MarkdownDescription: "Why this workspace may manage what another tool or workspace manages; without, changes of such resources fail. Kept with the revision; remove it again."},
			"wait_for_sync":      schema.DynamicAttribute{Optional: true, MarkdownDescription: described(waits), Validators: []validator.Dynamic{shapeOf(waits)}},
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
	if !workspaceName.MatchString(workspace) {
		response.Diagnostics.AddAttributeError(path.Root("workspace"), "gtm's provider is not set up", fmt.Sprintf("`%s` is no name of a workspace: letters, digits and `._:/@+-`, at most 200, beginning with a letter or a digit", shortened(workspace)))
		return
	}
	timeout := 60.0
	if !given.Timeout.IsNull() {
		var err error
		if timeout, err = parseDuration(given.Timeout.ValueString()); err != nil || timeout < 1 {
			response.Diagnostics.AddAttributeError(path.Root("timeout"), "gtm's provider is not set up", fmt.Sprintf("`timeout` is a duration of a second at least, such as `2m`, not `%s`", shortened(given.Timeout.ValueString())))
			return
		}
	}
	made, err := client.New(client.Options{
		Timeout:   time.Duration(timeout * float64(time.Second)),
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
	wait, err := newSync(ctx, given.WaitForSync, made)
	if err != nil {
		response.Diagnostics.AddAttributeError(path.Root("wait_for_sync"), "gtm's provider is not set up", err.Error())
		return
	}
	shelf := client.NewShelf(made)
	force := client.Force{FenceChange: reason(given.AllowFenceChange), Disruption: reason(given.AllowDisruption), TakeOver: reason(given.TakeOver)}
	said := comment(given.Comment.ValueString(), origin(workspace))
	writer := client.NewWriter(made, shelf, force, said, wait.wrote)
	shared := &Shared{
		Client: made, Shelf: shelf, Writer: writer, Gather: newGather(made, shelf, writer, force), Sync: wait, Manager: "terraform/" + workspace, Comment: said, Force: force,
	}
	response.ResourceData, response.DataSourceData = shared, shared
}

// workspaceName is what control takes behind `terraform/`.
var workspaceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$`)

func (p *gtmProvider) Resources(context.Context) []func() resource.Resource {
	var found []func() resource.Resource
	for _, kind := range spec.Kinds() {
		found = append(found, func() resource.Resource { return &kindResource{kind: kind} })
	}
	return append(found,
		func() resource.Resource { return &stateResource{} },
		func() resource.Resource { return &policyResource{} },
		func() resource.Resource { return &tokenResource{} },
	)
}

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

// reason is a reason that was given, on one line; blank ones count for none.
func reason(given types.String) string { return strings.TrimSpace(line(given.ValueString())) }

// line is a text without line breaks and other control characters, which revisions do not take.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// origin says which workspace and run makes a change, as far as the environment tells it.
func origin(workspace string) string {
	said := "terraform workspace " + workspace
	for _, variable := range []string{"TFC_RUN_ID", "ATLANTIS_PULL_NUM", "GITHUB_RUN_ID", "CI_PIPELINE_ID", "BUILD_ID"} {
		if run := os.Getenv(variable); run != "" {
			return said + fmt.Sprintf(", run %s (%s)", run, variable)
		}
	}
	return said
}

// comment is what is kept with a revision: why, and where it comes from.
func comment(given, from string) string {
	said := from
	if given != "" {
		said = given + "; " + from
	}
	said = line(said)
	const most = 1000 // what control keeps of one
	if runes := []rune(said); len(runes) > most {
		return string(runes[:most])
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
