package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"terraform-provider-gtm/internal/spec"
	"terraform-provider-gtm/internal/values"
)

const (
	// expectations is the file of a folder that holds expected decisions, which are `gtm check`'s.
	expectations = "expect.yaml"
	// largestFile bounds a file of a policy, as gtm does.
	largestFile = 64 << 20
)

// document is a policy as JSON: kind → resources.
type document map[string][]any

// readFolder reads the YAML files of a folder; several merge by concatenation.
func readFolder(folder string) (document, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	whole, found := document{}, false
	for _, entry := range entries { // by name
		name := entry.Name()
		if suffix := filepath.Ext(name); entry.IsDir() || name == expectations || (suffix != ".yaml" && suffix != ".yml") {
			continue
		}
		found = true
		part, err := readFile(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for kind, resources := range part {
			whole[kind] = append(whole[kind], resources...)
		}
	}
	if !found {
		return nil, fmt.Errorf("there are no *.yaml files in `%s`", folder)
	}
	return whole, nil
}

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
	return readText(text)
}

// readText reads a policy written as YAML, or as JSON, which is YAML.
func readText(text []byte) (document, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	if len(node.Content) == 0 {
		return document{}, nil // an empty file
	}
	left := mostValues
	top, err := plain(node.Content[0], 0, &left)
	if err != nil {
		return nil, err
	}
	kinds, ok := top.(map[string]any)
	if !ok {
		return nil, errors.New("a policy is a mapping from kinds (`regions`, `services`, …) to lists")
	}
	found := document{}
	for kind, value := range kinds {
		if _, known := spec.Find(kind); !known {
			return nil, fmt.Errorf("`%s` is no kind of resource: there are %s", shortened(kind), kindNames())
		}
		resources, ok := value.([]any)
		if !ok && value != nil {
			return nil, fmt.Errorf("%s: this must be a list", kind)
		}
		found[kind] = resources
	}
	return found, nil
}

func kindNames() string {
	var names []string
	for _, kind := range spec.Kinds() {
		names = append(names, kind.Field)
	}
	return strings.Join(names, ", ")
}

const (
	// deepest bounds how deep a document is nested.
	deepest = 64
	// mostValues bounds how many values a file holds, with those that aliases repeat: a few lines can stand for billions.
	mostValues = 5_000_000
)

// plain is a node as JSON has it: YAML's timestamps and the like are the texts that they are.
func plain(node *yaml.Node, depth int, left *int) (any, error) {
	at := func(format string, arguments ...any) error {
		return fmt.Errorf("line %d: %s", node.Line, fmt.Sprintf(format, arguments...))
	}
	if *left--; depth > deepest || *left < 0 {
		return nil, at("this is nested too deep, or has too many values")
	}
	switch node.Kind {
	case yaml.MappingNode:
		return mapping(node, depth, left, at)
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
	return plain(node.Alias, depth+1, left)
}

func mapping(node *yaml.Node, depth int, left *int, at func(string, ...any) error) (any, error) {
	found := map[string]any{}
	for i := 0; i < len(node.Content); i += 2 {
		name := node.Content[i]
		if name.Kind != yaml.ScalarNode {
			return nil, at("a key must be a text")
		}
		if _, twice := found[name.Value]; twice {
			return nil, at("`%s` is there twice", shortened(name.Value))
		}
		value, err := plain(node.Content[i+1], depth+1, left)
		if err != nil {
			return nil, err
		}
		found[name.Value] = value
	}
	return found, nil
}

func scalar(node *yaml.Node) (any, error) {
	switch node.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var truth bool
		err := node.Decode(&truth)
		return truth, err
	case "!!int", "!!float":
		var number json.Number
		if json.Unmarshal([]byte(node.Value), &number) == nil {
			return number, nil
		}
		var float float64
		err := node.Decode(&float)
		return float, err
	}
	return node.Value, nil
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
