package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"terraform-provider-gtm/internal/spec"
	"terraform-provider-gtm/internal/values"
)

const (
	// largestFile bounds a file of a policy, as gtm does.
	largestFile = 10 << 20
)

// document is a policy as JSON: kind → resources.
type document map[string][]any

func readFile(path string) (document, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, largestFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > largestFile {
		return nil, fmt.Errorf("it has more than %d bytes", largestFile)
	}
	if strings.EqualFold(filepath.Ext(path), ".json") {
		return readJSON(text)
	}
	return readText(text)
}

// readText reads a policy written as YAML, or as JSON, which is YAML: one document after each `---`.
func readText(text []byte) (document, error) {
	found, left := document{}, mostValues
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		if len(node.Content) == 0 {
			continue // an empty file
		}
		top, err := plain(node.Content[0], 0, &left)
		if err != nil {
			return nil, err
		}
		if err := found.add(top); err != nil {
			return nil, err
		}
	}
}

// add adds what one document of a file holds; null: nothing between two `---`.
func (d document) add(top any) error {
	kinds, ok := top.(map[string]any)
	if !ok && top != nil {
		return errors.New("a policy is a mapping from kinds (`regions`, `services`, …) to lists")
	}
	for _, kind := range sortedKeys(kinds) {
		if _, known := spec.Find(kind); !known {
			return fmt.Errorf("`%s` is no kind of resource: there are %s", shortened(kind), kindNames())
		}
		resources, ok := kinds[kind].([]any)
		if !ok && kinds[kind] != nil {
			return fmt.Errorf("%s: this must be a list", kind)
		}
		d[kind] = append(d[kind], resources...)
	}
	return nil
}

func kindNames() string {
	var names []string
	for _, kind := range spec.Kinds() {
		names = append(names, kind.Field)
	}
	return strings.Join(names, ", ")
}

const (
	// deepest bounds how deep lists and mappings are nested, as gtm does (gtm/nesting.py).
	deepest = 100
	// mostValues bounds how many values a file holds, with those that aliases repeat: a few lines can stand for billions.
	mostValues = 1_000_000
)

// plain is a node as JSON has it.
func plain(node *yaml.Node, depth int, left *int) (any, error) {
	if *left--; *left < 0 {
		return nil, at(node, "a file has at most %d values, with those that aliases repeat", mostValues)
	}
	if depth == deepest && (node.Kind == yaml.MappingNode || node.Kind == yaml.SequenceNode) {
		return nil, at(node, "nested deeper than %d", deepest)
	}
	switch node.Kind {
	case yaml.MappingNode:
		return mapping(node, depth, left)
	case yaml.SequenceNode:
		items := make([]any, 0, len(node.Content))
		for _, child := range node.Content {
			item, err := plain(child, depth+1, left)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		return items, nil
	case yaml.ScalarNode:
		return scalar(node)
	}
	return plain(node.Alias, depth, left)
}

func at(node *yaml.Node, format string, arguments ...any) error {
	return fmt.Errorf("line %d: %s", node.Line, fmt.Sprintf(format, arguments...))
}

// mapping is a mapping with what `<<` merges into it, where it does not say otherwise itself.
func mapping(node *yaml.Node, depth int, left *int) (any, error) {
	found, merged := map[string]any{}, map[string]any{}
	for i := 0; i < len(node.Content); i += 2 {
		name := node.Content[i]
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		if name.Kind != yaml.ScalarNode {
			return nil, at(name, "a key must be a text")
		}
		value, err := plain(node.Content[i+1], depth+1, left)
		if err != nil {
			return nil, err
		}
		if name.ShortTag() == "!!merge" {
			if err := merge(merged, value); err != nil {
				return nil, at(name, "%s", err)
			}
			continue
		}
		if _, twice := found[name.Value]; twice {
			return nil, at(name, "`%s` is there twice", shortened(name.Value))
		}
		found[name.Value] = value
	}
	for name, value := range merged {
		if _, own := found[name]; !own {
			found[name] = value
		}
	}
	return found, nil
}

// merge adds a mapping, or several, of which the first that has a key counts.
func merge(into map[string]any, value any) error {
	several, ok := value.([]any)
	if !ok {
		several = []any{value}
	}
	for _, one := range several {
		fields, ok := one.(map[string]any)
		if !ok {
			return errors.New("`<<` takes mappings")
		}
		for name, field := range fields {
			if _, there := into[name]; !there {
				into[name] = field
			}
		}
	}
	return nil
}

// What plain scalars are: the core schema of YAML 1.2 with decimal integers, as gtm reads it (gtm/documents/yamls.py).
// `NO`, dates and `1_000` are texts.
var (
	plainNull  = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	plainBool  = regexp.MustCompile(`^(?:true|True|TRUE|false|False|FALSE)$`)
	plainHex   = regexp.MustCompile(`^0x[0-9a-fA-F]{1,28}$`)
	plainFloat = regexp.MustCompile(`^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$`)
	plainEnds  = regexp.MustCompile(`^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	plainInt   = regexp.MustCompile(`^[-+]?[0-9]+$`)
)

func scalar(node *yaml.Node) (any, error) {
	tagged := node.Style&yaml.TaggedStyle != 0
	quoted := node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	text := node.Value
	switch {
	case tagged && node.ShortTag() != "!!str":
		return nil, at(node, "the tag `%s` says nothing here: leave it out", shortened(node.Tag))
	case tagged || quoted:
		return text, nil
	case plainNull.MatchString(text):
		return nil, nil
	case plainBool.MatchString(text):
		return strings.EqualFold(text, "true"), nil
	case plainEnds.MatchString(text):
		return nil, at(node, "`%s` is no number that a policy may hold", text)
	case plainHex.MatchString(text):
		number, _ := new(big.Int).SetString(text[2:], 16)
		return json.Number(number.String()), nil
	case plainFloat.MatchString(text):
		return decimal(node)
	}
	return text, nil
}

// decimal is a number as JSON writes it: without `+`, leading zeros and the like.
func decimal(node *yaml.Node) (any, error) {
	const longest = 30
	if plainInt.MatchString(node.Value) {
		number, ok := new(big.Int).SetString(strings.TrimPrefix(node.Value, "+"), 10)
		if !ok || len(node.Value) > longest {
			return nil, at(node, "this number is too long")
		}
		return json.Number(number.String()), nil
	}
	number, err := strconv.ParseFloat(node.Value, 64)
	if err != nil {
		return nil, at(node, "`%s` is too large a number", shortened(node.Value))
	}
	if json.Valid([]byte(node.Value)) {
		return json.Number(node.Value), nil
	}
	return json.Number(strconv.FormatFloat(number, 'g', -1, 64)), nil
}

// names are the resources that a document holds, in order.
func (d document) names() (found []resourceKey, err error) {
	for _, kind := range spec.Kinds() {
		for i, one := range d[kind.Field] {
			fields, _ := one.(map[string]any)
			name, ok := fields["name"].(string)
			if !ok {
				return nil, fmt.Errorf("%s[%d]: it has no `name`", kind.Field, i)
			}
			found = append(found, resourceKey{kind.Field, name})
		}
	}
	return found, nil
}

// text is the document as JSON that is the same for the same content.
func (d document) text() string {
	sorted := document{}
	for kind, resources := range d {
		if len(resources) == 0 {
			continue
		}
		sorted[kind] = slices.Clone(resources)
		slices.SortStableFunc(sorted[kind], func(a, b any) int { return strings.Compare(nameIn(a), nameIn(b)) })
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(sorted); err != nil {
		panic(err) // it was read from what JSON can say
	}
	return strings.TrimSpace(text.String())
}

func nameIn(resource any) string {
	fields, _ := resource.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

func fromText(text string) (document, error) {
	found := document{}
	if text == "" {
		return found, nil
	}
	err := values.Unmarshal([]byte(text), &found)
	return found, err
}
