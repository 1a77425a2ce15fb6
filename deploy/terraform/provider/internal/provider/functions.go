package provider

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"

	_ "embed"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"golang.org/x/text/unicode/norm"

	"terraform-provider-gtm/internal/spec"
)

func (p *gtmProvider) Functions(context.Context) []func() function.Function {
	return []func() function.Function{
		func() function.Function { return cityFunction{} },
		func() function.Function { return durationFunction{} },
	}
}

type city struct {
	Name    string  `tfsdk:"name"`
	Country string  `tfsdk:"country"`
	Lat     float64 `tfsdk:"lat"`
	Lon     float64 `tfsdk:"lon"`
}

// cities are those that gtm itself knows, by folded name. The file is the program's own.
var cities = sync.OnceValue(func() map[string]city {
	rows, err := csv.NewReader(strings.NewReader(spec.Cities)).ReadAll()
	if err != nil {
		panic("cities.csv: " + err.Error())
	}
	found := make(map[string]city, len(rows))
	for _, row := range rows[1:] {
		lat, errLat := strconv.ParseFloat(row[2], 64)
		lon, errLon := strconv.ParseFloat(row[3], 64)
		if errLat != nil || errLon != nil {
			panic("cities.csv: " + strings.Join(row, ","))
		}
		found[folded(row[0])] = city{row[0], row[1], lat, lon}
	}
	return found
})

// folded is a name without case, accents, hyphens and spaces: São Paulo, sao-paulo and SAO PAULO are one.
func folded(name string) string {
	plain := norm.NFKD.String(strings.NewReplacer("ß", "ss", "ø", "o", "Ø", "O").Replace(name))
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return -1
	}, plain)
}

type cityFunction struct{}

func (cityFunction) Metadata(_ context.Context, _ function.MetadataRequest, response *function.MetadataResponse) {
	response.Name = "city"
}

func (cityFunction) Definition(_ context.Context, _ function.DefinitionRequest, response *function.DefinitionResponse) {
	response.Definition = function.Definition{
		Summary:             "Where a city is",
		MarkdownDescription: "Country (ISO 3166-1 alpha-2) and coordinates (degrees north and east) of a city with data centres, whatever its case, accents and hyphens: `provider::gtm::city(\"Frankfurt\").lat`.",
		Parameters:          []function.Parameter{function.StringParameter{Name: "name", MarkdownDescription: "The city's name in English or its own language."}},
		Return: function.ObjectReturn{AttributeTypes: map[string]attr.Type{
			"name": types.StringType, "country": types.StringType, "lat": types.Float64Type, "lon": types.Float64Type,
		}},
	}
}

func (cityFunction) Run(ctx context.Context, request function.RunRequest, response *function.RunResponse) {
	var name string
	if response.Error = request.Arguments.Get(ctx, &name); response.Error != nil {
		return
	}
	found, ok := cities()[folded(name)]
	if !ok {
		response.Error = function.NewArgumentFuncError(0, fmt.Sprintf("the city `%s` is not known here%s; give a larger city nearby, or country and coordinates themselves", shortened(name), alike(name)))
		return
	}
	response.Error = response.Result.Set(ctx, found)
}

// alike names cities that begin the same.
func alike(name string) string {
	key := folded(name)
	const begins = 3
	if len(key) < begins {
		return ""
	}
	var found []string
	for _, other := range sortedKeys(cities()) {
		if strings.HasPrefix(other, key[:begins]) && len(found) < begins {
			found = append(found, cities()[other].Name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(found, " or ") + "?"
}

type durationFunction struct{}

func (durationFunction) Metadata(_ context.Context, _ function.MetadataRequest, response *function.MetadataResponse) {
	response.Name = "parse_duration"
}

func (durationFunction) Definition(_ context.Context, _ function.DefinitionRequest, response *function.DefinitionResponse) {
	response.Definition = function.Definition{
		Summary:             "How many seconds a duration has",
		MarkdownDescription: "The seconds of a text such as `90s`, `5m`, `1h30m` or `2d` (units: `ms`, `s`, `m`, `h`, `d`, `w`), for the API counts in seconds: `ttl = provider::gtm::parse_duration(\"5m\")`.",
		Parameters:          []function.Parameter{function.StringParameter{Name: "duration", MarkdownDescription: "The text."}},
		Return:              function.Float64Return{},
	}
}

func (durationFunction) Run(ctx context.Context, request function.RunRequest, response *function.RunResponse) {
	var text string
	if response.Error = request.Arguments.Get(ctx, &text); response.Error != nil {
		return
	}
	seconds, err := parseDuration(text)
	if err != nil {
		response.Error = function.NewArgumentFuncError(0, err.Error())
		return
	}
	response.Error = response.Result.Set(ctx, seconds)
}
