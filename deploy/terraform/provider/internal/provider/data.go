package provider

import (
	"context"
	"errors"
	"net/url"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
)

// dataSource is what all data sources share: a name, and the connection.
type dataSource struct {
	name   string
	shared *Shared
}

func (d *dataSource) Metadata(_ context.Context, request datasource.MetadataRequest, response *datasource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + d.name
}

func (d *dataSource) Configure(_ context.Context, request datasource.ConfigureRequest, response *datasource.ConfigureResponse) {
	d.shared = sharedOf(request.ProviderData, &response.Diagnostics)
}

// failed tells why something cannot be read, at the attributes that control names if it names some.
func failed(diagnostics *diag.Diagnostics, title string, err error, known map[string]schema.Attribute) {
	var problem *client.Problem
	if errors.As(err, &problem) && problem.Status == 422 {
		rest := 0
		for _, fault := range problem.Errors {
			if _, ok := known[fault.Path]; ok {
				diagnostics.AddAttributeError(path.Root(fault.Path), title, fault.Message)
			} else {
				rest++
			}
		}
		if len(problem.Errors) > 0 && rest == 0 {
			return
		}
	}
	diagnostics.AddError(title, err.Error())
}

func (p *gtmProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		func() datasource.DataSource { return &routeData{dataSource{name: "route"}} },
		func() datasource.DataSource { return &findingsData{dataSource{name: "findings"}} },
		func() datasource.DataSource { return &jurisdictionData{dataSource{name: "jurisdiction"}} },
		func() datasource.DataSource { return &regionsData{dataSource{name: "regions"}} },
		func() datasource.DataSource { return &edgesData{dataSource{name: "edges"}} },
		func() datasource.DataSource { return &revisionData{dataSource{name: "revision"}} },
	}
}

func stringsOf(values []string) types.List {
	elements := make([]attr.Value, len(values))
	for i, value := range values {
		elements[i] = types.StringValue(value)
	}
	return types.ListValueMust(types.StringType, elements)
}

func setOf(values []string) types.Set {
	elements := make([]attr.Value, len(values))
	for i, value := range values {
		elements[i] = types.StringValue(value)
	}
	return types.SetValueMust(types.StringType, elements)
}

// findingsData is what is legal in the policy in force, and probably not meant.
type findingsData struct{ dataSource }

type findingsModel struct {
	Revision types.Int64    `tfsdk:"revision"`
	Findings []findingModel `tfsdk:"findings"`
}

type findingModel struct {
	Path    string `tfsdk:"path"`
	Code    string `tfsdk:"code"`
	Message string `tfsdk:"message"`
}

func (d *findingsData) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "What is legal in the policy in force and probably not meant, as `gtm check` finds it.",
		Attributes: map[string]schema.Attribute{
			"revision": schema.Int64Attribute{Computed: true, MarkdownDescription: "The revision that was looked at."},
			"findings": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "All of them.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"path":    schema.StringAttribute{Computed: true, MarkdownDescription: "Where: `services.chat.members[0].region`."},
				"code":    schema.StringAttribute{Computed: true, MarkdownDescription: "What it is, in a word."},
				"message": schema.StringAttribute{Computed: true, MarkdownDescription: "What it is, in a sentence."},
			}}},
		},
	}
}

func (d *findingsData) Read(ctx context.Context, _ datasource.ReadRequest, response *datasource.ReadResponse) {
	var found struct {
		Revision int64          `json:"revision"`
		Findings []client.Fault `json:"findings"`
	}
	body := map[string]any{"policy": map[string]any{}, "partial": true}
	_, err := d.shared.Client.Do(ctx, client.Call{Method: "POST", Path: "/v1/policy:plan", Body: body, Into: &found, Reads: true})
	if err != nil {
		failed(&response.Diagnostics, "Cannot read the findings", err, nil)
		return
	}
	model := findingsModel{Revision: types.Int64Value(found.Revision), Findings: []findingModel{}}
	for _, one := range found.Findings {
		model.Findings = append(model.Findings, findingModel(one))
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

// jurisdictionData is a jurisdiction as it is today, shipped or the policy's own, or a country.
type jurisdictionData struct{ dataSource }

type jurisdictionModel struct {
	Name        types.String `tfsdk:"name"`
	DisplayName types.String `tfsdk:"display_name"`
	Origin      types.String `tfsdk:"origin"`
	Source      types.String `tfsdk:"source"`
	Members     types.List   `tfsdk:"members"`
	Countries   types.Set    `tfsdk:"countries"`
}

func (d *jurisdictionData) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "A jurisdiction as it is today: one that is shipped with gtm (`EEA`), one of the policy, or a country.",
		Attributes: map[string]schema.Attribute{
			"name":         schema.StringAttribute{Required: true, MarkdownDescription: "Its name, or a country's code (ISO 3166-1 alpha-2)."},
			"display_name": schema.StringAttribute{Computed: true, MarkdownDescription: "What people call it."},
			"origin":       schema.StringAttribute{Computed: true, MarkdownDescription: "`shipped` with gtm, an `operator`'s own, or a `country`."},
			"source":       schema.StringAttribute{Computed: true, MarkdownDescription: "Where its members are written down."},
			"members":      schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Countries and jurisdictions that it is made of."},
			"countries":    schema.SetAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "All countries that it covers today, members of members included."},
		},
	}
}

func (d *jurisdictionData) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	var model jurisdictionModel
	response.Diagnostics.Append(request.Config.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	var found struct {
		DisplayName string   `json:"display_name"`
		Origin      string   `json:"origin"`
		Source      string   `json:"source"`
		Members     []string `json:"members"`
		Countries   []string `json:"countries"`
	}
	where := "/v1/jurisdictions/" + client.Segment(model.Name.ValueString())
	if _, err := d.shared.Client.Do(ctx, client.Call{Method: "GET", Path: where, Into: &found, Reads: true}); err != nil {
		failed(&response.Diagnostics, "Cannot read the jurisdiction", err, nil)
		return
	}
	model.DisplayName, model.Origin = types.StringValue(found.DisplayName), types.StringValue(found.Origin)
	model.Source, model.Members, model.Countries = types.StringValue(found.Source), stringsOf(found.Members), setOf(found.Countries)
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

// regionsData is which regions there are.
type regionsData struct{ dataSource }

type regionModel struct {
	Name       string  `tfsdk:"name"`
	Country    string  `tfsdk:"country"`
	Lat        float64 `tfsdk:"lat"`
	Lon        float64 `tfsdk:"lon"`
	AdminState string  `tfsdk:"admin_state"`
	ManagedBy  string  `tfsdk:"managed_by"`
}

type regionsModel struct {
	Country types.String  `tfsdk:"country"`
	Names   types.Set     `tfsdk:"names"`
	Regions []regionModel `tfsdk:"regions"`
}

func (d *regionsData) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "Which regions there are, whoever manages them.",
		Attributes: map[string]schema.Attribute{
			"country": schema.StringAttribute{Optional: true, MarkdownDescription: "Only those in this country (ISO 3166-1 alpha-2)."},
			"names":   schema.SetAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Their names."},
			"regions": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "They themselves, by name.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name":        schema.StringAttribute{Computed: true, MarkdownDescription: "Its name."},
				"country":     schema.StringAttribute{Computed: true, MarkdownDescription: "Where it is."},
				"lat":         schema.Float64Attribute{Computed: true, MarkdownDescription: "Degrees north."},
				"lon":         schema.Float64Attribute{Computed: true, MarkdownDescription: "Degrees east."},
				"admin_state": schema.StringAttribute{Computed: true, MarkdownDescription: "`active`, `draining` or `disabled`."},
				"managed_by":  schema.StringAttribute{Computed: true, MarkdownDescription: "The tool that manages it; empty: none."},
			}}},
		},
	}
}

func (d *regionsData) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	var model regionsModel
	response.Diagnostics.Append(request.Config.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	all, err := d.shared.Shelf.All(ctx, "/v1/regions")
	if err != nil {
		failed(&response.Diagnostics, "Cannot read the regions", err, nil)
		return
	}
	model.Regions = []regionModel{}
	var names []string
	for _, name := range sortedKeys(all) {
		one := regionOf(all[name])
		if !model.Country.IsNull() && one.Country != model.Country.ValueString() {
			continue
		}
		names = append(names, name)
		model.Regions = append(model.Regions, one)
	}
	model.Names = setOf(names)
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

// edge is an edge as control knows it.
type edge struct {
	Name     string  `json:"name"`
	Version  string  `json:"version"`
	Address  string  `json:"address"`
	Revision int64   `json:"revision"`
	Live     bool    `json:"live"`
	Country  *string `json:"country"`
}

func allEdges(ctx context.Context, from *client.Client) (found []edge, err error) {
	for cursor := ""; ; {
		var page struct {
			Items      []edge  `json:"items"`
			NextCursor *string `json:"next_cursor"`
		}
		query := url.Values{}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if _, err := from.Do(ctx, client.Call{Method: "GET", Path: "/v1/edges", Query: query, Into: &page, Reads: true}); err != nil {
			return nil, err
		}
		found = append(found, page.Items...)
		if page.NextCursor == nil {
			return found, nil
		}
		cursor = *page.NextCursor
	}
}

// edgesData is which edges there are.
type edgesData struct{ dataSource }

type edgeModel struct {
	Name     string  `tfsdk:"name"`
	Version  string  `tfsdk:"version"`
	Address  string  `tfsdk:"address"`
	Revision int64   `tfsdk:"revision"`
	Live     bool    `tfsdk:"live"`
	Country  *string `tfsdk:"country"`
}

type edgesModel struct {
	Edges []edgeModel `tfsdk:"edges"`
}

func (d *edgesData) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "Every edge that control has ever heard of.",
		Attributes: map[string]schema.Attribute{
			"edges": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "The edges, by name.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name":     schema.StringAttribute{Computed: true, MarkdownDescription: "Its name."},
				"version":  schema.StringAttribute{Computed: true, MarkdownDescription: "Its version of gtm."},
				"address":  schema.StringAttribute{Computed: true, MarkdownDescription: "Where it reports from."},
				"revision": schema.Int64Attribute{Computed: true, MarkdownDescription: "The revision that it answers from."},
				"live":     schema.BoolAttribute{Computed: true, MarkdownDescription: "Whether it was heard of within 10 seconds."},
				"country":  schema.StringAttribute{Computed: true, MarkdownDescription: "Where it is, if it says so."},
			}}},
		},
	}
}

func (d *edgesData) Read(ctx context.Context, _ datasource.ReadRequest, response *datasource.ReadResponse) {
	edges, err := allEdges(ctx, d.shared.Client)
	if err != nil {
		failed(&response.Diagnostics, "Cannot read the edges", err, nil)
		return
	}
	model := edgesModel{Edges: []edgeModel{}}
	for _, one := range edges {
		model.Edges = append(model.Edges, edgeModel(one))
	}
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

// revisionData is the revision in force, or another; it waits for edges if it is told to.
type revisionData struct{ dataSource }

type revisionModel struct {
	Number      types.Int64   `tfsdk:"number"`
	CreatedAt   types.String  `tfsdk:"created_at"`
	Author      types.String  `tfsdk:"author"`
	Comment     types.String  `tfsdk:"comment"`
	SHA256      types.String  `tfsdk:"sha256"`
	WaitForSync types.Dynamic `tfsdk:"wait_for_sync"`
}

func (d *revisionData) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	waits := syncAttribute("Wait until edges have it; if they do not within the time, reading fails.")
	response.Schema = schema.Schema{
		MarkdownDescription: "A revision of the policy: who made it, when and why.",
		Attributes: map[string]schema.Attribute{
			"number":        schema.Int64Attribute{Optional: true, Computed: true, MarkdownDescription: "Which; left out: the one in force."},
			"created_at":    schema.StringAttribute{Computed: true, MarkdownDescription: "When it was made (RFC 3339)."},
			"author":        schema.StringAttribute{Computed: true, MarkdownDescription: "The token that made it."},
			"comment":       schema.StringAttribute{Computed: true, MarkdownDescription: "Why."},
			"sha256":        schema.StringAttribute{Computed: true, MarkdownDescription: "Of its policy."},
			"wait_for_sync": schema.DynamicAttribute{Optional: true, MarkdownDescription: described(waits), Validators: []validator.Dynamic{shapeOf(waits)}},
		},
	}
}

func (d *revisionData) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	var model revisionModel
	response.Diagnostics.Append(request.Config.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	wait, err := newSync(ctx, model.WaitForSync, d.shared.Client)
	if err != nil {
		response.Diagnostics.AddAttributeError(path.Root("wait_for_sync"), "Cannot read the revision", err.Error())
		return
	}
	type revision struct {
		Number    int64  `json:"number"`
		CreatedAt string `json:"created_at"`
		Author    string `json:"author"`
		Comment   string `json:"comment"`
		SHA256    string `json:"sha256"`
	}
	var page struct {
		Items []revision `json:"items"`
	}
	query := url.Values{"limit": {"1"}}
	if !model.Number.IsNull() {
		query.Set("below", types.Int64Value(model.Number.ValueInt64()+1).String())
	}
	if _, err := d.shared.Client.Do(ctx, client.Call{Method: "GET", Path: "/v1/revisions", Query: query, Into: &page, Reads: true}); err != nil {
		failed(&response.Diagnostics, "Cannot read the revision", err, nil)
		return
	}
	if len(page.Items) == 0 || (!model.Number.IsNull() && page.Items[0].Number != model.Number.ValueInt64()) {
		response.Diagnostics.AddAttributeError(path.Root("number"), "There is no such revision", "`gtm revisions` lists them.")
		return
	}
	one := page.Items[0]
	if wait != nil {
		if missing := wait.Wait(ctx, one.Number); missing != "" {
			response.Diagnostics.AddAttributeError(path.Root("wait_for_sync"), "Not every edge has the revision", missing)
			return
		}
	}
	model.Number, model.CreatedAt, model.Author = types.Int64Value(one.Number), types.StringValue(one.CreatedAt), types.StringValue(one.Author)
	model.Comment, model.SHA256 = types.StringValue(one.Comment), types.StringValue(one.SHA256)
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}
