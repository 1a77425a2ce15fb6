package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
)

// routeData is one decision by the policy in force, with its reasons.
type routeData struct{ dataSource }

type routeModel struct {
	Service    types.String     `tfsdk:"service"`
	ClientIP   types.String     `tfsdk:"client_ip"`
	Country    types.String     `tfsdk:"country"`
	City       types.String     `tfsdk:"city"`
	Tenant     types.String     `tfsdk:"tenant"`
	DataClass  types.String     `tfsdk:"data_class"`
	Model      types.String     `tfsdk:"model"`
	Priority   types.String     `tfsdk:"priority"`
	Over       types.String     `tfsdk:"over"`
	Host       types.String     `tfsdk:"host"`
	At         types.String     `tfsdk:"at"`
	Outcome    types.String     `tfsdk:"outcome"`
	Region     types.String     `tfsdk:"region"`
	Endpoint   types.String     `tfsdk:"endpoint"`
	TTL        types.Int64      `tfsdk:"ttl"`
	Reason     types.String     `tfsdk:"reason"`
	Lines      types.List       `tfsdk:"lines"`
	Rules      types.Set        `tfsdk:"rules"`
	Allowed    types.Set        `tfsdk:"allowed_regions"`
	Candidates []candidateModel `tfsdk:"candidates"`
	Revision   types.Int64      `tfsdk:"revision"`
}

type candidateModel struct {
	Region     string   `tfsdk:"region" json:"region"`
	Rank       int64    `tfsdk:"rank" json:"rank"`
	Share      float64  `tfsdk:"share" json:"share"`
	EstimateMs *float64 `tfsdk:"estimate_ms" json:"estimate_ms"`
	Excluded   *string  `tfsdk:"excluded" json:"excluded"`
	Why        *string  `tfsdk:"why" json:"why"`
}

type explanation struct {
	Outcome  string         `json:"outcome"`
	Region   *string        `json:"region"`
	Endpoint map[string]any `json:"endpoint"`
	TTL      int64          `json:"ttl"`
	Reason   string         `json:"reason"`
	Lines    []string       `json:"lines"`
	Rules    []struct {
		Name string `json:"name"`
	} `json:"rules"`
	Candidates []candidateModel `json:"candidates"`
	Revision   int64            `json:"revision"`
}

func (d *routeData) attributes() map[string]schema.Attribute {
	optional := func(said string) schema.Attribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: said}
	}
	return map[string]schema.Attribute{
		"service":    schema.StringAttribute{Required: true, MarkdownDescription: "The service that is asked for."},
		"client_ip":  optional("The client's address, or a subnet as a resolver states it; in place of `country` and `city`."),
		"country":    optional("Where the client is (ISO 3166-1 alpha-2)."),
		"city":       optional("A city that gtm knows, in place of `country`."),
		"tenant":     optional("On whose behalf."),
		"data_class": optional("What kind of data it carries."),
		"model":      optional("The model that is asked for."),
		"priority":   optional("Left out: the service's."),
		"over":       optional("How it is asked: `http` (default) or `dns`."),
		"host":       optional("The host name that is asked for."),
		"at":         optional("When, by the law of that day (RFC 3339, from 2018-05-25 on); left out: now. Health, plan and latency are those of now."),
		"outcome":    schema.StringAttribute{Computed: true, MarkdownDescription: "`served`, or how it is refused."},
		"region":     schema.StringAttribute{Computed: true, MarkdownDescription: "The region that serves it; null: none."},
		"endpoint":   schema.StringAttribute{Computed: true, MarkdownDescription: "The URL there; null: none."},
		"ttl":        schema.Int64Attribute{Computed: true, MarkdownDescription: "For how many seconds the answer holds."},
		"reason":     schema.StringAttribute{Computed: true, MarkdownDescription: "Why, in a word."},
		"lines":      schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Why, in sentences: the refusal, if it is one, then every member region in rank order."},
		"rules":      schema.SetAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "The residency rules that apply."},
		"allowed_regions": schema.SetAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "The member regions that no residency rule excludes, healthy or not: what the law allows. To assert that a fence holds, " +
			"compare this, which does not change with the traffic."},
		"candidates": schema.ListNestedAttribute{Computed: true, MarkdownDescription: "Every member region, the best first.", NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"region":      schema.StringAttribute{Computed: true, MarkdownDescription: "Its name."},
			"rank":        schema.Int64Attribute{Computed: true, MarkdownDescription: "From 1, in the order of preference."},
			"share":       schema.Float64Attribute{Computed: true, MarkdownDescription: "Its part of such requests (0–1)."},
			"estimate_ms": schema.Float64Attribute{Computed: true, MarkdownDescription: "The round-trip time in milliseconds; null: the client's place is unknown."},
			"excluded":    schema.StringAttribute{Computed: true, MarkdownDescription: "Why it is no candidate, in a word (`residency`, `unhealthy`, `draining`, …); null: it is one."},
			"why":         schema.StringAttribute{Computed: true, MarkdownDescription: "Likewise, in a sentence."},
		}}},
		"revision": schema.Int64Attribute{Computed: true, MarkdownDescription: "The revision that it was decided by."},
	}
}

func (d *routeData) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "Which region serves a request, by the policy in force and by health, plan and latency as they are now, with all of why. For `check` blocks that assert decisions. " +
			"It is asked while the plan is made, unless it waits for what the plan changes: list the services and rules of the same configuration that the decision rests on in `depends_on`, so that it is made by the policy with them, in the first apply, too. " +
			"A reference such as `gtm_service.chat.name` waits for that service alone, and not for the rules about it.",
		Attributes: d.attributes(),
	}
}

func (d *routeData) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	var model routeModel
	response.Diagnostics.Append(request.Config.Get(ctx, &model)...)
	if response.Diagnostics.HasError() {
		return
	}
	body := map[string]any{}
	for name, value := range map[string]types.String{
		"service": model.Service, "client_ip": model.ClientIP, "country": model.Country, "city": model.City, "tenant": model.Tenant, "data_class": model.DataClass,
		"model": model.Model, "priority": model.Priority, "over": model.Over, "host": model.Host, "at": model.At,
	} {
		if !value.IsNull() {
			body[name] = value.ValueString()
		}
	}
	d.shared.Gather.settle(ctx, quiet, 5*quiet) // what changes beside it may be told at this very moment
	changing := ""
	if some := d.shared.Gather.Changing(); len(some) > 0 && !d.shared.Writer.Begun() {
		changing = fmt.Sprintf("This plan changes %s, and this was decided without. To wait until they are made, list what it rests on: `depends_on = [gtm_service.NAME, gtm_residency_rule.NAME]`.", listed(some))
	}
	var found explanation
	if _, err := d.shared.Client.Do(ctx, client.Call{Method: "POST", Path: "/v1/route:explain", Body: body, Into: &found, Reads: true}); err != nil {
		failed(&response.Diagnostics, "Cannot tell the route", err, d.attributes())
		if changing != "" {
			response.Diagnostics.AddWarning("The route is asked before what this plan changes is there", changing)
		}
		return
	}
	if changing != "" {
		response.Diagnostics.AddWarning("The route is decided by the policy before this plan", changing)
	}
	model.fill(found)
	response.Diagnostics.Append(response.State.Set(ctx, model)...)
}

// listed are a few of some, and how many more there are.
func listed(some []string) string {
	const most = 3
	if len(some) <= most {
		return strings.Join(some, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(some[:most], ", "), len(some)-most)
}

func (m *routeModel) fill(found explanation) {
	m.Outcome, m.Region, m.Reason = types.StringValue(found.Outcome), types.StringPointerValue(found.Region), types.StringValue(found.Reason)
	m.TTL, m.Revision, m.Lines = types.Int64Value(found.TTL), types.Int64Value(found.Revision), stringsOf(found.Lines)
	if url, ok := found.Endpoint["url"].(string); ok {
		m.Endpoint = types.StringValue(url)
	}
	var rules, allowed []string
	for _, rule := range found.Rules {
		rules = append(rules, rule.Name)
	}
	for _, one := range found.Candidates {
		if one.Excluded == nil || *one.Excluded != "residency" {
			allowed = append(allowed, one.Region)
		}
	}
	m.Rules, m.Allowed, m.Candidates = setOf(rules), setOf(allowed), found.Candidates
	if m.Candidates == nil {
		m.Candidates = []candidateModel{}
	}
}
