package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

// shortestSecret is how many characters a secret has at least: 40 of 62 kinds are 238 bits.
const shortestSecret = 40

// tokenResource is a token whose text is drawn elsewhere, and neither in Terraform's state nor ever at control: both know
// its digest at most.
type tokenResource struct{ shared *Shared }

var (
	_ resource.ResourceWithConfigure   = &tokenResource{}
	_ resource.ResourceWithImportState = &tokenResource{}
)

type tokenModel struct {
	Name    types.String `tfsdk:"name"`
	Role    types.String `tfsdk:"role"`
	Edges   types.String `tfsdk:"edges"`
	Regions types.String `tfsdk:"regions"`
	Names   types.String `tfsdk:"names"`
	Owner   types.String `tfsdk:"owner"`
	Expires types.String `tfsdk:"expires_at"`
	Secret  types.String `tfsdk:"secret_wo"`
	Version types.Int64  `tfsdk:"secret_wo_version"`
	Grace   types.Int64  `tfsdk:"grace_seconds"`
	ID      types.String `tfsdk:"token_id"`
}

func (r *tokenResource) Metadata(_ context.Context, request resource.MetadataRequest, response *resource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_token"
}

func (r *tokenResource) Configure(_ context.Context, request resource.ConfigureRequest, response *resource.ConfigureResponse) {
	r.shared = sharedOf(request.ProviderData, &response.Diagnostics)
}

func (r *tokenResource) Schema(_ context.Context, _ resource.SchemaRequest, response *resource.SchemaResponse) {
	replaced := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	roles := spec.Attribute{Type: spec.String, Enum: []string{"viewer", "operator", "fence-admin", "admin", "edge", "balancer", "reporter", "acme"}}
	secret := check{"long enough", func(value any) string {
		if len(value.(string)) < shortestSecret {
			return fmt.Sprintf("a secret has at least %d characters: draw them, such as by `ephemeral \"random_password\"`", shortestSecret)
		}
		return ""
	}}
	response.Schema = schema.Schema{
		MarkdownDescription: "A token for an edge, a balancer or a person. Its text is drawn by Terraform (`ephemeral \"random_password\"`, say), handed to whoever needs it, and passed here write-only: it is in no state and no plan, and control stores its digest alone. " +
			"Needs Terraform 1.11 (write-only attributes) and a provider token of role `admin`.",
		Attributes: map[string]schema.Attribute{
			"name":              schema.StringAttribute{Required: true, PlanModifiers: replaced, MarkdownDescription: "Its name."},
			"role":              schema.StringAttribute{Required: true, PlanModifiers: replaced, MarkdownDescription: "What it may do: `viewer`, `operator`, `fence-admin`, `admin`, `edge`, `balancer`, `reporter` or `acme`.", Validators: []validator.String{stringCheck{textChecks(roles)[0]}}},
			"edges":             schema.StringAttribute{Optional: true, PlanModifiers: replaced, MarkdownDescription: "Of role `edge`: the edge that it speaks for, or a pattern of names (`fra-*`). Left out: the edge of its own name."},
			"regions":           schema.StringAttribute{Optional: true, PlanModifiers: replaced, MarkdownDescription: "Of role `balancer`, and if wanted of role `reporter`: the region that it may report on, or a pattern of names (`eu-*`)."},
			"names":             schema.StringAttribute{Optional: true, PlanModifiers: replaced, MarkdownDescription: "Of role `acme`: the name for whose certificates it may write challenges, or a pattern of names (`*.example.com`, which includes `example.com`)."},
			"owner":             schema.StringAttribute{Optional: true, PlanModifiers: replaced, MarkdownDescription: "The person or automation that stands behind it. Left out: the owner of the provider's token."},
			"expires_at":        schema.StringAttribute{Optional: true, PlanModifiers: replaced, MarkdownDescription: "When it ends (RFC 3339). Left out: never."},
			"secret_wo":         schema.StringAttribute{Required: true, WriteOnly: true, Sensitive: true, MarkdownDescription: "The token's text. Write-only.", Validators: []validator.String{stringCheck{secret}}},
			"secret_wo_version": schema.Int64Attribute{Required: true, MarkdownDescription: "Another number: there is a new text, and the old one works for `grace_seconds` yet."},
			"grace_seconds":     schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(3600), MarkdownDescription: "For how long the old text works after a new one. Default: `3600`."},
			"token_id":          schema.StringAttribute{Computed: true, MarkdownDescription: "What audit logs call it."},
		},
	}
}

func digestOf(secret types.String) string {
	found := sha256.Sum256([]byte(secret.ValueString()))
	return hex.EncodeToString(found[:])
}

func (r *tokenResource) Create(ctx context.Context, request resource.CreateRequest, response *resource.CreateResponse) {
	var model, config tokenModel
	response.Diagnostics.Append(request.Plan.Get(ctx, &model)...)
	response.Diagnostics.Append(request.Config.Get(ctx, &config)...)
	if response.Diagnostics.HasError() {
		return
	}
	body := map[string]any{"name": model.Name.ValueString(), "role": model.Role.ValueString(), "sha256": digestOf(config.Secret)}
	for name, value := range map[string]types.String{"edges": model.Edges, "regions": model.Regions, "names": model.Names, "owner": model.Owner, "expires_at": model.Expires} {
		if !value.IsNull() {
			body[name] = value.ValueString()
		}
	}
	if !r.send(ctx, "/v1/tokens", body, &model, &response.Diagnostics) {
		return
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

func (r *tokenResource) send(ctx context.Context, where string, body map[string]any, model *tokenModel, diagnostics *diag.Diagnostics) bool {
	var made struct {
		ID string `json:"id"`
	}
	if _, err := r.shared.Client.Do(ctx, client.Call{Method: "POST", Path: where, Body: body, Into: &made}); err != nil {
		diagnostics.AddError(fmt.Sprintf("Token `%s` is not made", model.Name.ValueString()), err.Error())
		return false
	}
	model.ID, model.Secret = types.StringValue(made.ID), types.StringNull()
	return true
}

func (r *tokenResource) Update(ctx context.Context, request resource.UpdateRequest, response *resource.UpdateResponse) {
	var before, model, config tokenModel
	response.Diagnostics.Append(request.State.Get(ctx, &before)...)
	response.Diagnostics.Append(request.Plan.Get(ctx, &model)...)
	response.Diagnostics.Append(request.Config.Get(ctx, &config)...)
	if response.Diagnostics.HasError() {
		return
	}
	model.ID, model.Secret = before.ID, types.StringNull()
	if !before.Version.Equal(model.Version) {
		body := map[string]any{"grace_seconds": model.Grace.ValueInt64(), "sha256": digestOf(config.Secret)}
		if !r.send(ctx, "/v1/tokens/"+client.Segment(model.Name.ValueString())+":rotate", body, &model, &response.Diagnostics) {
			return
		}
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

// heldToken is a token as control lists it.
type heldToken struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Role      string  `json:"role"`
	Edges     *string `json:"edges"`
	Regions   *string `json:"regions"`
	Names     *string `json:"names"`
	Owner     *string `json:"owner"`
	ExpiresAt *string `json:"expires_at"`
	RevokedAt *string `json:"revoked_at"`
}

// find is the token of a name that works, if there is one.
func (r *tokenResource) find(ctx context.Context, name string) (*heldToken, error) {
	for cursor := ""; ; {
		var page struct {
			Items      []heldToken `json:"items"`
			NextCursor *string     `json:"next_cursor"`
		}
		query := url.Values{"limit": {"1000"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if _, err := r.shared.Client.Do(ctx, client.Call{Method: "GET", Path: "/v1/tokens", Query: query, Into: &page, Reads: true}); err != nil {
			return nil, err
		}
		for _, one := range page.Items {
			if one.Name == name && one.RevokedAt == nil && !ended(one.ExpiresAt) {
				return &one, nil
			}
		}
		if page.NextCursor == nil {
			return nil, nil
		}
		cursor = *page.NextCursor
	}
}

func ended(at *string) bool {
	if at == nil {
		return false
	}
	moment, err := time.Parse(time.RFC3339, *at)
	return err == nil && moment.Before(time.Now())
}

func (r *tokenResource) Read(ctx context.Context, request resource.ReadRequest, response *resource.ReadResponse) {
	var model tokenModel
	response.Diagnostics.Append(request.State.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	found, err := r.find(ctx, model.Name.ValueString())
	if err != nil {
		response.Diagnostics.AddError("Cannot read the token", err.Error())
		return
	}
	if found == nil { // revoked, expired or never there: the next plan makes it
		response.State.RemoveResource(ctx)
		return
	}
	imported := model.ID.IsNull()
	model.ID, model.Role = types.StringValue(found.ID), types.StringValue(found.Role)
	if imported {
		model.Edges, model.Regions = types.StringPointerValue(found.Edges), types.StringPointerValue(found.Regions)
		model.Names = types.StringPointerValue(found.Names)
		model.Owner, model.Expires = types.StringPointerValue(found.Owner), types.StringPointerValue(found.ExpiresAt)
		model.Version, model.Grace = types.Int64Value(1), types.Int64Value(3600)
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

func (r *tokenResource) Delete(ctx context.Context, request resource.DeleteRequest, response *resource.DeleteResponse) {
	var model tokenModel
	response.Diagnostics.Append(request.State.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	name := model.Name.ValueString()
	if found, err := r.find(ctx, name); err == nil && found == nil {
		return
	}
	if _, err := r.shared.Client.Do(ctx, client.Call{Method: "DELETE", Path: "/v1/tokens/" + client.Segment(name)}); err != nil {
		response.Diagnostics.AddError(fmt.Sprintf("Token `%s` is not revoked", name), err.Error())
	}
}

func (r *tokenResource) ImportState(ctx context.Context, request resource.ImportStateRequest, response *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("name"), request, response)
}
