package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }

// regionOf is a region as data sources tell it.
func regionOf(found client.Resource) regionModel {
	text := func(name string) string { value, _ := found.Document[name].(string); return value }
	degrees := func(name string) float64 {
		number, _ := found.Document[name].(json.Number)
		value, _ := number.Float64()
		return value
	}
	return regionModel{text("name"), text("country"), degrees("lat"), degrees("lon"), text("admin_state"), found.Manager}
}

const active = "active"

// verbs is what is asked of a region so that it gets into a state.
var verbs = map[string]string{active: "activate", "draining": "drain", "disabled": "disable"}

// stateResource is a region's admin state as code, apart from the region: an incident's drain is no business of the
// configuration that made it.
type stateResource struct{ shared *Shared }

var (
	_ resource.ResourceWithConfigure   = &stateResource{}
	_ resource.ResourceWithImportState = &stateResource{}
	_ resource.ResourceWithModifyPlan  = &stateResource{}
)

type stateModel struct {
	Region     types.String `tfsdk:"region"`
	AdminState types.String `tfsdk:"admin_state"`
	Comment    types.String `tfsdk:"comment"`
}

func (r *stateResource) Metadata(_ context.Context, request resource.MetadataRequest, response *resource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_region_state"
}

func (r *stateResource) Configure(_ context.Context, request resource.ConfigureRequest, response *resource.ConfigureResponse) {
	r.shared = sharedOf(request.ProviderData, &response.Diagnostics)
}

func (r *stateResource) Schema(_ context.Context, _ resource.SchemaRequest, response *resource.SchemaResponse) {
	states := spec.Attribute{Type: spec.String, Enum: sortedKeys(verbs)}
	response.Schema = schema.Schema{
		MarkdownDescription: "Drains a region, or takes it out of service, as code. Without this resource a region's state is left to operators, who drain by hand in an incident; with it, the next plan undoes what they did. " +
			"Destroying it makes the region active again.",
		Attributes: map[string]schema.Attribute{
			"region": schema.StringAttribute{Required: true, MarkdownDescription: "The region's name.", PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
			"admin_state": schema.StringAttribute{Required: true, MarkdownDescription: "`active`; `draining`: it takes no new clients; `disabled`: it serves nobody, and is not probed.",
				Validators: []validator.String{stringCheck{textChecks(states)[0]}}},
			"comment": schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(""), MarkdownDescription: "Why; kept with the revision."},
		},
	}
}

func (r *stateResource) ModifyPlan(ctx context.Context, request resource.ModifyPlanRequest, response *resource.ModifyPlanResponse) {
	var before, after *stateModel
	response.Diagnostics.Append(request.State.Get(ctx, &before)...)
	response.Diagnostics.Append(request.Plan.Get(ctx, &after)...)
	if response.Diagnostics.HasError() || r.shared == nil {
		return
	}
	switch {
	case after == nil && before != nil:
		response.Diagnostics.Append(r.shared.Gather.TellState(ctx, before.Region.ValueString(), active)...)
	case after == nil || after.Region.IsUnknown() || after.AdminState.IsUnknown():
	case before == nil || !before.AdminState.Equal(after.AdminState) || !before.Region.Equal(after.Region):
		response.Diagnostics.Append(r.shared.Gather.TellState(ctx, after.Region.ValueString(), after.AdminState.ValueString())...)
	}
}

func (r *stateResource) set(ctx context.Context, model stateModel) error {
	query := url.Values{"comment": {comment(model.Comment.ValueString(), r.shared.Comment)}}
	call := client.Call{Method: "POST", Path: "/v1/regions/" + client.Segment(model.Region.ValueString()) + ":" + verbs[model.AdminState.ValueString()], Query: query}
	defer r.shared.Shelf.Forget("/v1/regions")
	return r.shared.Force.Do(ctx, r.shared.Client, call)
}

func (r *stateResource) Create(ctx context.Context, request resource.CreateRequest, response *resource.CreateResponse) {
	var model stateModel
	response.Diagnostics.Append(request.Plan.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	if err := r.set(ctx, model); err != nil {
		response.Diagnostics.AddError(fmt.Sprintf("Region `%s` does not become %s", model.Region.ValueString(), model.AdminState.ValueString()), err.Error())
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

func (r *stateResource) Update(ctx context.Context, request resource.UpdateRequest, response *resource.UpdateResponse) {
	var model stateModel
	response.Diagnostics.Append(request.Plan.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	if err := r.set(ctx, model); err != nil {
		response.Diagnostics.AddError(fmt.Sprintf("Region `%s` does not become %s", model.Region.ValueString(), model.AdminState.ValueString()), err.Error())
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

func (r *stateResource) Read(ctx context.Context, request resource.ReadRequest, response *resource.ReadResponse) {
	var model stateModel
	response.Diagnostics.Append(request.State.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	found, ok, err := r.shared.Shelf.Get(ctx, "/v1/regions", model.Region.ValueString())
	if err != nil {
		response.Diagnostics.AddError("Cannot read the region's state", err.Error())
		return
	}
	if !ok {
		response.State.RemoveResource(ctx)
		return
	}
	model.AdminState = types.StringValue(regionOf(found).AdminState)
	if model.Comment.IsNull() { // imported
		model.Comment = types.StringValue("")
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

func (r *stateResource) Delete(ctx context.Context, request resource.DeleteRequest, response *resource.DeleteResponse) {
	var model stateModel
	response.Diagnostics.Append(request.State.Get(ctx, &model)...)
	found, ok, err := r.shared.Shelf.Get(ctx, "/v1/regions", model.Region.ValueString())
	if response.Diagnostics.HasError() || (err == nil && (!ok || regionOf(found).AdminState == active)) {
		return
	}
	model.AdminState = types.StringValue(active)
	if err := r.set(ctx, model); err != nil {
		response.Diagnostics.AddError(fmt.Sprintf("Region `%s` does not become active", model.Region.ValueString()), err.Error())
	}
}

func (r *stateResource) ImportState(ctx context.Context, request resource.ImportStateRequest, response *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("region"), request, response)
}
