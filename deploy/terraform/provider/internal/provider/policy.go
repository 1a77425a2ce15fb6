package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
)

// policyResource is a folder or a document as one revision: all of it, or nothing.
//
// Laws:
//  1. What is applied is what was shown: apply asks control once more what would change, and fails if that is not what the
//     plan says; nothing gets between the question and the change (If-Match).
//  2. What it held and holds no longer is deleted. What it never held is only if it is the whole.
type policyResource struct{ shared *Shared }

var (
	_ resource.ResourceWithConfigure   = &policyResource{}
	_ resource.ResourceWithImportState = &policyResource{}
	_ resource.ResourceWithModifyPlan  = &policyResource{}
)

type policyModel struct {
	Folder   types.String `tfsdk:"folder"`
	Document types.String `tfsdk:"document"`
	Whole    types.Bool   `tfsdk:"whole"`
	SHA256   types.String `tfsdk:"sha256"`
	Changes  types.List   `tfsdk:"changes"`
}

// heldKey is where private state keeps the document that was applied.
const heldKey = "held"

func (r *policyResource) Metadata(_ context.Context, request resource.MetadataRequest, response *resource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_policy"
}

func (r *policyResource) Configure(_ context.Context, request resource.ConfigureRequest, response *resource.ConfigureResponse) {
	r.shared = sharedOf(request.ProviderData, &response.Diagnostics)
}

func (r *policyResource) Schema(_ context.Context, _ resource.SchemaRequest, response *resource.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "A folder of YAML files, or a document, as one revision: all of it or nothing, in whatever order its parts refer to one another, and looked at as a whole when it is planned. " +
			"A resource belongs here or to a resource of its own kind, not to both.",
		Attributes: map[string]schema.Attribute{
			"folder":   schema.StringAttribute{Optional: true, MarkdownDescription: "A folder of `*.yaml`, `*.yml` and `*.json` files, with those in folders below it, as `gtm apply` takes one. Either this or `document`."},
			"document": schema.StringAttribute{Optional: true, MarkdownDescription: "The policy itself, as YAML or JSON: `jsonencode({ tenants = [{ name = \"clinic\" }] })`."},
			"whole":    schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false), MarkdownDescription: "Whether this is the whole policy: everything else is deleted, whoever made it. Default: `false`."},
			"sha256":   schema.StringAttribute{Computed: true, MarkdownDescription: "Of the content."},
			"changes":  schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "What the last apply that changed something changed, or the coming one would: `updated service chat: ttl`."},
		},
	}
}

// read is the content of a configuration; ok is false if it is not known yet, or wrong.
func (m policyModel) read(diagnostics *diag.Diagnostics) (found document, ok bool) {
	var err error
	at := path.Root("folder")
	switch {
	case m.Folder.IsUnknown() || m.Document.IsUnknown():
		return nil, false
	case m.Folder.IsNull() == m.Document.IsNull():
		diagnostics.AddError("gtm_policy needs a policy", "Give either `folder` or `document`.")
		return nil, false
	case m.Folder.IsNull():
		at = path.Root("document")
		found, err = readText([]byte(m.Document.ValueString()))
	default:
		var unread []string
		if found, unread, err = readFolder(m.Folder.ValueString()); len(unread) > 0 {
			called := "A policy's files are called *.yaml, *.yml or *.json. Not read: "
			diagnostics.AddAttributeWarning(at, "Files in the folder were not read", called+strings.Join(unread, ", "))
		}
	}
	if err == nil {
		_, err = found.names()
	}
	if err != nil {
		diagnostics.AddAttributeError(at, "The policy cannot be read", err.Error())
		return nil, false
	}
	return found, true
}

func sum(content document) string {
	digest := sha256.Sum256([]byte(content.text()))
	return hex.EncodeToString(digest[:])
}

func (r *policyResource) ModifyPlan(ctx context.Context, request resource.ModifyPlanRequest, response *resource.ModifyPlanResponse) {
	held := heldIn(ctx, request.Private.GetKey, &response.Diagnostics)
	if response.Diagnostics.HasError() || r.shared == nil || request.Plan.Raw.IsNull() {
		return
	}
	var before *policyModel
	var after policyModel
	response.Diagnostics.Append(request.State.Get(ctx, &before)...)
	response.Diagnostics.Append(request.Plan.Get(ctx, &after)...)
	if response.Diagnostics.HasError() {
		return
	}
	content, ok := after.read(&response.Diagnostics)
	if !ok {
		return
	}
	after.SHA256 = types.StringValue(sum(content))
	plan, err := r.ask(ctx, content, held, after.Whole.ValueBool())
	if err != nil {
		failedPolicy(&response.Diagnostics, err)
		return
	}
	after.Changes = stringsOf(plan.lines())
	same := before != nil && before.SHA256.Equal(after.SHA256) && before.Whole.Equal(after.Whole)
	if same && len(plan.Changes) == 0 {
		after.Changes = before.Changes // nothing to do: what was done last stays as it was told
	}
	if !r.shared.Writer.Begun() {
		for _, one := range r.shared.Gather.verdict(plan.planned, nil) {
			if one.warning {
				response.Diagnostics.AddWarning(one.title, one.text)
			} else {
				response.Diagnostics.AddError(one.title, one.text)
			}
		}
		for i, finding := range plan.Findings {
			if i < mostTold && len(plan.Changes) > 0 {
				response.Diagnostics.AddWarning("This is probably not meant", finding.Path+": "+finding.Message)
			}
		}
	}
	response.Diagnostics.Append(response.Plan.Set(ctx, after)...)
}

// policyPlan is what control says that a policy would change.
type policyPlan struct {
	planned
	Revision int64 `json:"revision"`
	Changes  []struct {
		Kind   string `json:"kind"`
		Name   string `json:"name"`
		Action string `json:"action"`
		Fields []struct {
			Path string `json:"path"`
		} `json:"fields"`
	} `json:"changes"`
}

func (p policyPlan) lines() []string {
	var found []string
	for _, one := range p.Changes {
		line := one.Action + " " + one.Kind + "." + one.Name
		for i, field := range one.Fields {
			line += map[bool]string{true: ": ", false: ", "}[i == 0] + field.Path
		}
		found = append(found, line)
	}
	return found
}

// body is a change to a content from what was held before.
func body(content, held document, whole bool) (map[string]any, error) {
	names, err := content.names()
	if err != nil {
		return nil, err
	}
	before, err := held.names()
	if err != nil {
		return nil, err
	}
	deletes := []any{}
	for _, key := range before {
		if !whole && !slices.Contains(names, key) {
			deletes = append(deletes, map[string]any{"kind": key.field, "name": key.name})
		}
	}
	return map[string]any{"policy": content, "partial": !whole, "delete": deletes}, nil
}

func (r *policyResource) ask(ctx context.Context, content, held document, whole bool) (found policyPlan, err error) {
	sent, err := body(content, held, whole)
	if err != nil {
		return found, err
	}
	_, err = r.shared.Client.Do(ctx, client.Call{Method: "POST", Path: "/v1/policy:plan", Body: sent, Into: &found, Reads: true})
	return found, err
}

// apply makes the change that was planned, or none. Others may change the policy beside it, such as resources of the same
// plan, as long as what this changes stays the same.
func (r *policyResource) apply(ctx context.Context, content, held document, whole bool, planned []string) error {
	r.shared.Writer.Begin()
	defer r.shared.Shelf.ForgetAll()
	const attempts = 20
	for made := 1; ; made++ {
		err := r.attempt(ctx, content, held, whole, planned)
		var problem *client.Problem
		if made == attempts || !errors.As(err, &problem) || problem.Status != http.StatusPreconditionFailed {
			return err
		}
	}
}

// attempt asks what would change, and makes that change if no revision has come in between.
func (r *policyResource) attempt(ctx context.Context, content, held document, whole bool, planned []string) error {
	sent, err := body(content, held, whole)
	if err != nil {
		return err
	}
	var plan policyPlan
	sent["dry_run"] = true // asked of who may change it: without the process apart that viewers' plans are made in
	if _, err := r.shared.Client.Do(ctx, client.Call{Method: "POST", Path: "/v1/policy:apply", Body: sent, Into: &plan, Reads: true}); err != nil {
		return err
	}
	if planned != nil && !slices.Equal(plan.lines(), planned) {
		return fmt.Errorf("somebody has changed the policy since it was planned: it would change %q now, and %q was planned. Plan again", plan.lines(), planned)
	}
	delete(sent, "dry_run")
	sent["comment"] = r.shared.Comment
	var done struct {
		Revision int64 `json:"revision"`
	}
	call := client.Call{
		Method: "POST", Path: "/v1/policy:apply", Body: sent, Query: r.shared.Force.Query(), Into: &done,
		Headers: map[string]string{"If-Match": fmt.Sprintf("%q", fmt.Sprint(plan.Revision))},
	}
	if err := r.shared.Force.Do(ctx, r.shared.Client, call); err != nil {
		return err
	}
	return r.shared.Sync.wrote(ctx, done.Revision)
}

func failedPolicy(diagnostics *diag.Diagnostics, err error) {
	diagnostics.AddError("Control refuses the policy", err.Error())
}

func (r *policyResource) Create(ctx context.Context, request resource.CreateRequest, response *resource.CreateResponse) {
	var model policyModel
	response.Diagnostics.Append(request.Plan.Get(ctx, &model)...)
	if held, ok := r.write(ctx, &model, nil, &response.Diagnostics); ok {
		response.Diagnostics.Append(response.Private.SetKey(ctx, heldKey, held)...)
		response.Diagnostics.Append(response.State.Set(ctx, model)...)
	}
}

func (r *policyResource) Update(ctx context.Context, request resource.UpdateRequest, response *resource.UpdateResponse) {
	var model policyModel
	response.Diagnostics.Append(request.Plan.Get(ctx, &model)...)
	before := heldIn(ctx, request.Private.GetKey, &response.Diagnostics)
	if response.Diagnostics.HasError() {
		return
	}
	if held, ok := r.write(ctx, &model, before, &response.Diagnostics); ok {
		response.Diagnostics.Append(response.Private.SetKey(ctx, heldKey, held)...)
		response.Diagnostics.Append(response.State.Set(ctx, model)...)
	}
}

// write applies a model; what is kept of it privately.
func (r *policyResource) write(ctx context.Context, model *policyModel, held document, diagnostics *diag.Diagnostics) ([]byte, bool) {
	if diagnostics.HasError() {
		return nil, false
	}
	content, ok := model.read(diagnostics)
	if !ok {
		return nil, false
	}
	if !model.SHA256.IsUnknown() && model.SHA256.ValueString() != sum(content) {
		diagnostics.AddError("The policy has been changed since it was planned", "Plan again.")
		return nil, false
	}
	var planned []string
	if !model.Changes.IsUnknown() {
		planned = []string{}
		diagnostics.Append(model.Changes.ElementsAs(ctx, &planned, false)...)
	}
	if err := r.apply(ctx, content, held, model.Whole.ValueBool(), planned); err != nil {
		failedPolicy(diagnostics, err)
		return nil, false
	}
	r.shared.Sync.Warn(diagnostics)
	if model.Changes.IsUnknown() || model.SHA256.IsUnknown() {
		model.Changes, model.SHA256 = stringsOf(nil), types.StringValue(sum(content))
	}
	text, err := json.Marshal(content.text())
	if err != nil {
		diagnostics.AddError("This is a bug in gtm's provider", err.Error())
		return nil, false
	}
	return text, true
}

// heldIn is the document that was applied last.
func heldIn(ctx context.Context, private func(context.Context, string) ([]byte, diag.Diagnostics), diagnostics *diag.Diagnostics) document {
	kept, found := private(ctx, heldKey)
	diagnostics.Append(found...)
	var text string
	if len(kept) == 0 || json.Unmarshal(kept, &text) != nil {
		return document{}
	}
	held, err := fromText(text)
	if err != nil {
		diagnostics.AddError("gtm_policy's state cannot be read", err.Error())
	}
	return held
}

// Read leaves state as it is: ModifyPlan asks control what differs.
func (r *policyResource) Read(ctx context.Context, request resource.ReadRequest, response *resource.ReadResponse) {
	var model policyModel
	response.Diagnostics.Append(request.State.Get(ctx, &model)...)
	if response.Diagnostics.HasError() || !model.SHA256.IsNull() {
		return
	}
	r.imported(ctx, &model, response)
}

// imported is the state of what was just imported: the whole policy that is in force.
func (r *policyResource) imported(ctx context.Context, model *policyModel, response *resource.ReadResponse) {
	var whole struct {
		Policy document `json:"policy"`
	}
	if _, err := r.shared.Client.Do(ctx, client.Call{Method: "GET", Path: "/v1/policy", Into: &whole, Reads: true}); err != nil {
		failedPolicy(&response.Diagnostics, err)
		return
	}
	text := whole.Policy.text()
	kept, err := json.Marshal(text)
	if err != nil {
		failedPolicy(&response.Diagnostics, err)
		return
	}
	model.Document, model.Whole = types.StringValue(text), types.BoolValue(true)
	model.SHA256, model.Changes = types.StringValue(sum(whole.Policy)), stringsOf(nil)
	response.Diagnostics.Append(response.Private.SetKey(ctx, heldKey, kept)...)
	response.Diagnostics.Append(response.State.Set(ctx, *model)...)
}

func (r *policyResource) Delete(ctx context.Context, request resource.DeleteRequest, response *resource.DeleteResponse) {
	held := heldIn(ctx, request.Private.GetKey, &response.Diagnostics)
	if response.Diagnostics.HasError() {
		return
	}
	if err := r.apply(ctx, document{}, held, false, nil); err != nil {
		failedPolicy(&response.Diagnostics, err)
	}
}

func (r *policyResource) ImportState(ctx context.Context, request resource.ImportStateRequest, response *resource.ImportStateResponse) {
	if request.ID != "policy" {
		response.Diagnostics.AddError("gtm_policy is imported as `policy`", "There is one policy. It becomes the resource's `document`.")
		return
	}
	response.Diagnostics.Append(response.State.SetAttribute(ctx, path.Root("changes"), stringsOf(nil))...)
}
