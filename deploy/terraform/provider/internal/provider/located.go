package provider

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

type fault struct {
	path    path.Path
	message string
}

var step = regexp.MustCompile(`^(?:\.?([A-Za-z_]\w*)|\[(\d+)\])`)

// located finds the attributes that faults are about: `services.chat.members[0].region` of service `chat` is
// `members[0].region`. A path through a set ends at the set, whose elements have no place. What is about something
// else is left as it is.
func located(kind spec.Kind, name string, faults []client.Fault) (found []fault, rest []client.Fault) {
	for _, one := range faults {
		inside, ok := strings.CutPrefix(one.Path, kind.Field+"."+name)
		if !ok || (inside != "" && inside[0] != '.' && inside[0] != '[') {
			rest = append(rest, one)
			continue
		}
		found = append(found, fault{pathOf(kind.Attributes, inside), one.Message})
	}
	return found, rest
}

func pathOf(attributes []spec.Attribute, text string) path.Path {
	at := path.Empty()
	var current *spec.Attribute
	for text != "" {
		match := step.FindStringSubmatch(text)
		if match == nil {
			return at
		}
		text = text[len(match[0]):]
		switch {
		case match[2] != "":
			if current == nil || current.Type != spec.List {
				return at
			}
			index, _ := strconv.Atoi(match[2])
			at, current = at.AtListIndex(index), current.Element
			attributes = current.Attributes
		default:
			next := attribute(attributes, match[1])
			if next == nil {
				return at
			}
			if current == nil {
				at = path.Root(next.Name)
			} else {
				at = at.AtName(next.Name)
			}
			current, attributes = next, next.Attributes
		}
	}
	return at
}

func attribute(attributes []spec.Attribute, name string) *spec.Attribute {
	for i := range attributes {
		if attributes[i].Name == name {
			return &attributes[i]
		}
	}
	return nil
}
