package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
	"terraform-provider-gtm/internal/values"
)

// kindResource is the Terraform resource of one kind.
//
// Laws:
//  1. What is planned follows from the configuration alone: control's defaults are in the spec. So a plan after an apply
//     is empty, whatever control answers. Inside of nested attributes, defaults are not shown: they are planned as written.
//  2. State is what was configured for as long as control has what that made of it (`seen`, kept privately): another way to
//     write the same is no drift. As soon as control has anything else, state is what control has.
//  3. A write names the entity tag of what was read: somebody else's change in between is an error, and not lost.
type kindResource struct {
	kind   spec.Kind
	shared *Shared
}

var (
	_ resource.ResourceWithConfigure    = &kindResource{}
	_ resource.ResourceWithImportState  = &kindResource{}
	_ resource.ResourceWithModifyPlan   = &kindResource{}
	_ resource.ResourceWithUpgradeState = &kindResource{}
)

// seenKey is where a resource's private state keeps what control had after the last write or read.
const seenKey = "seen"

func (r *kindResource) Metadata(_ context.Context, request resource.MetadataRequest, response *resource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + r.kind.Name
}

func (r *kindResource) Schema(_ context.Context, _ resource.SchemaRequest, response *resource.SchemaResponse) {
	response.Schema = resourceSchema(r.kind)
}

func (r *kindResource) Configure(_ context.Context, request resource.ConfigureRequest, response *resource.ConfigureResponse) {
	r.shared = sharedOf(request.ProviderData, &response.Diagnostics)
}

// ModifyPlan completes what is planned, and has control look at it.
func (r *kindResource) ModifyPlan(ctx context.Context, request resource.ModifyPlanRequest, response *resource.ModifyPlanResponse) {
	before := nameOf(request.State.Raw)
	if request.Plan.Raw.IsNull() { // it is to be deleted
		response.Diagnostics.Append(r.tell(ctx, before, change{})...)
		return
	}
	planned, document, err := r.planned(request.Config.Raw, request.State.Raw)
	var unknown values.ErrUnknown
	if err != nil && !errors.As(err, &unknown) {
		response.Diagnostics.AddError("gtm's provider cannot read the configuration", err.Error())
		return
	}
	response.Plan.Raw = planned
	if planned.Equal(request.State.Raw) {
		response.Diagnostics.Append(r.unchanged(ctx, before)...)
		return
	}
	name := nameOf(planned)
	if err != nil {
		if name != "" {
			response.Diagnostics.Append(r.tell(ctx, name, change{unknown: unknown.Error()})...)
		}
		return
	}
	if had, err := r.document(request.State.Raw); err == nil && before != "" && r.same(had, document) {
		// the same in other words, such as a number of another precision: a function's, or a quotient
		response.Diagnostics.Append(r.unchanged(ctx, before)...)
		return
	}
	if before != "" && before != name {
		response.Diagnostics.Append(r.tell(ctx, before, change{})...)
	}
	response.Diagnostics.Append(r.tell(ctx, name, change{document: document})...)
}

// planned is a configuration with control's defaults, and what control is to have of it (values.ErrUnknown: that is not known
// yet). A nested attribute cannot be completed: Terraform wants it planned as it is written, or as it was.
func (r *kindResource) planned(config, state tftypes.Value) (tftypes.Value, map[string]any, error) {
	typed, faults, err := values.TypedAll(r.kind.Attributes, config)
	if err == nil && len(faults) > 0 {
		err = faults[0]
	}
	if err != nil {
		return config, nil, err
	}
	complete, err := values.CompleteAll(r.kind.Attributes, typed)
	if err != nil {
		return config, nil, err
	}
	planned, err := values.AsWritten(r.kind.Attributes, config, complete)
	if err != nil {
		return config, nil, err
	}
	if planned, err = values.Kept(r.kind.Attributes, state, planned); err != nil {
		return config, nil, err
	}
	document, err := values.ObjectToJSON(r.kind.Attributes, complete)
	return planned, document, err
}

// document is what control is to have of a plan, or has of a state.
func (r *kindResource) document(written tftypes.Value) (map[string]any, error) {
	typed, faults, err := values.TypedAll(r.kind.Attributes, written)
	if err == nil && len(faults) > 0 {
		err = faults[0]
	}
	if err != nil {
		return nil, err
	}
	complete, err := values.CompleteAll(r.kind.Attributes, typed)
	if err != nil {
		return nil, err
	}
	return values.ObjectToJSON(r.kind.Attributes, complete)
}

// same says whether two documents mean the same.
func (r *kindResource) same(one, other map[string]any) bool {
	return values.Canonical(r.kind.Attributes, one) == values.Canonical(r.kind.Attributes, other)
}

func (r *kindResource) tell(ctx context.Context, name string, what change) diag.Diagnostics {
	if r.shared == nil {
		return nil
	}
	return r.shared.Gather.Tell(ctx, r.kind, name, what)
}

func (r *kindResource) unchanged(ctx context.Context, name string) diag.Diagnostics {
	if r.shared == nil {
		return nil
	}
	return r.shared.Gather.Unchanged(ctx, r.kind, name)
}

func (r *kindResource) Create(ctx context.Context, request resource.CreateRequest, response *resource.CreateResponse) {
	document, name := r.writes(request.Plan.Raw, &response.Diagnostics)
	if response.Diagnostics.HasError() {
		return
	}
	write := client.Write{Field: r.kind.Field, Path: r.kind.Path, Name: name, Document: document}
	tag, note, err := r.shared.Writer.Do(ctx, write)
	stays(&response.Diagnostics, note)
	if client.Exists(err) && !r.ours(ctx, name, document) {
		response.Diagnostics.AddError(
			fmt.Sprintf("There is a %s `%s` already", label(r.kind), name),
			fmt.Sprintf("%s\n\nTo manage the one that is there, import it:\n\n  import {\n    to = gtm_%s.NAME\n    id = %q\n  }", err, r.kind.Name, name),
		)
		return
	}
	if err != nil && !client.Exists(err) {
		refused(&response.Diagnostics, r.kind, name, "create", err)
		return
	}
	if _, twice := r.shared.created.LoadOrStore(resourceKey{r.kind.Field, name}, true); twice {
		response.Diagnostics.AddError(
			fmt.Sprintf("Two resources of this configuration are the %s `%s`", label(r.kind), name),
			"The other one has been made. Remove one of the two, or give it another name.",
		)
		return
	}
	response.State.Raw = request.Plan.Raw
	response.Diagnostics.Append(response.Private.SetKey(ctx, seenKey, glance{Tag: tag}.text())...)
	r.shared.Sync.Warn(&response.Diagnostics)
}

// ours says whether what is there is what was to be made, and this workspace's: the connection broke after control had it.
func (r *kindResource) ours(ctx context.Context, name string, document map[string]any) bool {
	found, ok, err := r.shared.Shelf.Get(ctx, r.kind.Path, name)
	if err != nil || !ok || found.Manager != r.shared.Manager {
		return false
	}
	there, err := values.ObjectFromJSON(r.kind.Attributes, found.Document)
	if err != nil {
		return false
	}
	again, err := values.ObjectToJSON(r.kind.Attributes, there)
	return err == nil && r.same(again, document)
}

func (r *kindResource) Read(ctx context.Context, request resource.ReadRequest, response *resource.ReadResponse) {
	name := nameOf(request.State.Raw)
	found, ok, err := r.shared.Shelf.Get(ctx, r.kind.Path, name)
	if err != nil {
		refused(&response.Diagnostics, r.kind, name, "read", err)
		return
	}
	if !ok {
		response.State.RemoveResource(ctx)
		return
	}
	seen, diagnostics := request.Private.GetKey(ctx, seenKey)
	response.Diagnostics.Append(diagnostics...)
	now := glimpse(r.kind, found)
	response.Diagnostics.Append(response.Private.SetKey(ctx, seenKey, now.text())...)
	if glanceOf(seen).same(now) {
		response.State.Raw = request.State.Raw
		return
	}
	value, err := values.ObjectFromJSON(r.kind.Attributes, found.Document)
	if err == nil {
		value, err = r.written(value, request.State.Raw)
	}
	if err != nil {
		response.Diagnostics.AddError(fmt.Sprintf("Control's %s `%s` cannot be read", r.kind.Name, name), err.Error()+"\n\nIs control of another version than the provider?")
		return
	}
	response.State.Raw = value
}

func (r *kindResource) Update(ctx context.Context, request resource.UpdateRequest, response *resource.UpdateResponse) {
	document, name := r.writes(request.Plan.Raw, &response.Diagnostics)
	if response.Diagnostics.HasError() {
		return
	}
	tag, ok := r.tag(ctx, name, "update", request.Private.GetKey, &response.Diagnostics)
	if !ok {
		return
	}
	write := client.Write{Field: r.kind.Field, Path: r.kind.Path, Name: name, Document: document, Tag: tag}
	tag, note, err := r.shared.Writer.Do(ctx, write)
	stays(&response.Diagnostics, note)
	if err != nil {
		refused(&response.Diagnostics, r.kind, name, "update", err)
		return
	}
	response.State.Raw = request.Plan.Raw
	response.Diagnostics.Append(response.Private.SetKey(ctx, seenKey, glance{Tag: tag}.text())...)
	r.shared.Sync.Warn(&response.Diagnostics)
}

func (r *kindResource) Delete(ctx context.Context, request resource.DeleteRequest, response *resource.DeleteResponse) {
	name := nameOf(request.State.Raw)
	if _, anew := r.shared.created.Load(resourceKey{r.kind.Field, name}); anew {
		return // what has the name now is what this run has made: before the old one went, or for another resource of the configuration
	}
	tag, ok := r.tag(ctx, name, "delete", request.Private.GetKey, &response.Diagnostics)
	if !ok {
		return
	}
	write := client.Write{Field: r.kind.Field, Path: r.kind.Path, Name: name, Tag: tag}
	_, note, err := r.shared.Writer.Do(ctx, write)
	stays(&response.Diagnostics, note)
	if err != nil {
		if _, there, unread := r.shared.Shelf.Get(ctx, r.kind.Path, name); unread == nil && !there {
			return // somebody else was faster
		}
		refused(&response.Diagnostics, r.kind, name, "delete", err)
	}
	r.shared.Sync.Warn(&response.Diagnostics)
}

// stays warns of what was to be deleted and is not; an empty note: there is nothing of the kind.
func stays(diagnostics *diag.Diagnostics, note string) {
	if note != "" {
		diagnostics.AddWarning("What is to be deleted stays until it may go",
			note+"\n\nControl deletes it with the change that lets it go, such as another one of this run. If none does it stays in force, and `gtm status` says so.")
	}
}

func (r *kindResource) ImportState(ctx context.Context, request resource.ImportStateRequest, response *resource.ImportStateResponse) {
	_, ok, err := r.shared.Shelf.Get(ctx, r.kind.Path, request.ID)
	if err != nil {
		refused(&response.Diagnostics, r.kind, request.ID, "import", err)
		return
	}
	if !ok {
		response.Diagnostics.AddError(fmt.Sprintf("There is no %s `%s`", label(r.kind), request.ID), "A resource is imported by its name, as `gtm export -` shows it.")
		return
	}
	resource.ImportStatePassthroughID(ctx, path.Root("name"), request, response)
}

// writes is what control is to have, and its name.
func (r *kindResource) writes(planned tftypes.Value, diagnostics *diag.Diagnostics) (map[string]any, string) {
	document, err := r.document(planned)
	if err != nil {
		diagnostics.AddError("gtm's provider cannot write the resource", err.Error())
		return nil, ""
	}
	name, _ := document["name"].(string)
	return document, name
}

// tag is the entity tag of what was last read. If that is not what there is, control refuses the write, and says who has
// changed it, and in which revision.
func (r *kindResource) tag(ctx context.Context, name, verb string, private func(context.Context, string) ([]byte, diag.Diagnostics), diagnostics *diag.Diagnostics) (string, bool) {
	kept, found := private(ctx, seenKey)
	diagnostics.Append(found...)
	seen := glanceOf(kept)
	if seen.Tag != "" && r.kind.Field != "regions" {
		return seen.Tag, true
	}
	now, ok, err := r.shared.Shelf.Get(ctx, r.kind.Path, name)
	if err != nil {
		refused(diagnostics, r.kind, name, verb, err)
		return "", false
	}
	if !ok && verb != "delete" {
		diagnostics.AddError(fmt.Sprintf("There is no %s `%s` any more", label(r.kind), name), "Somebody has deleted it since it was planned. Plan again.")
		return "", false
	}
	if seen.Tag != "" && !seen.same(glimpse(r.kind, now)) {
		return seen.Tag, true
	}
	return now.Tag, ok // of a region whose admin state alone is another: an operator's, or gtm_region_state's
}

// glance is what private state keeps of a resource as control had it: its entity tag, and what stands for its fields (an
// operator's drain of a region gives it another tag, and is no drift); empty: it was written, and not read since.
type glance struct {
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
}

func glimpse(kind spec.Kind, found client.Resource) glance {
	known := make(map[string]any, len(kind.Attributes))
	for _, a := range kind.Attributes {
		known[a.Name] = found.Document[a.Name]
	}
	text, err := json.Marshal(known) // keys in order
	if err != nil {
		panic(err) // it was read from JSON
	}
	sum := sha256.Sum256(text)
	return glance{found.Tag, hex.EncodeToString(sum[:])}
}

func (g glance) text() []byte {
	text, err := json.Marshal(g)
	if err != nil {
		panic(err) // of two texts
	}
	return text
}

// glanceOf is what was kept, empty if nothing was.
func glanceOf(kept []byte) (found glance) {
	_ = json.Unmarshal(kept, &found)
	return found
}

// same says whether control still has what it had then.
func (g glance) same(now glance) bool {
	return g.Tag != "" && (g.Tag == now.Tag || (g.Digest != "" && g.Digest == now.Digest))
}

func nameOf(state tftypes.Value) string {
	var fields map[string]tftypes.Value
	var name string
	if state.As(&fields) == nil && fields["name"].IsKnown() && !fields["name"].IsNull() {
		_ = fields["name"].As(&name)
	}
	return name
}

// label is what people call a kind.
func label(kind spec.Kind) string { return strings.ReplaceAll(kind.Name, "_", " ") }

// refused tells a refusal, each fault at the attribute where it can be found. That a resource could not be read is not said where another error of the run says why.
func refused(diagnostics *diag.Diagnostics, kind spec.Kind, name, verb string, err error) {
	if verb == "read" && client.IsRepeated(err) {
		return
	}
	title := fmt.Sprintf("Cannot %s %s `%s`", verb, label(kind), name)
	var problem *client.Problem
	if errors.As(err, &problem) {
		at, rest := located(kind, name, problem.Errors)
		for _, one := range at {
			diagnostics.AddAttributeError(one.path, title, one.message)
		}
		if len(at) > 0 && len(rest) == 0 {
			return
		}
	}
	diagnostics.AddError(title, err.Error())
}
