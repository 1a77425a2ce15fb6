package provider

import (
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

type fault struct {
	path    path.Path
	message string
}

var beginning = regexp.MustCompile(`^\.([A-Za-z_]\w*)`)

// located finds the attributes that faults are about: `services.chat.members[0].region` of service `chat` is about
// `members`. What is about something else is left as it is.
func located(kind spec.Kind, name string, faults []client.Fault) (found []fault, rest []client.Fault) {
	for _, one := range faults {
		inside, ok := strings.CutPrefix(one.Path, kind.Field+"."+name)
		if !ok || (inside != "" && inside[0] != '.' && inside[0] != '[') {
			rest = append(rest, one)
			continue
		}
		found = append(found, fault{pathOf(kind.Attributes, inside), one.Path + ": " + one.Message})
	}
	return found, rest
}

// pathOf is the attribute of a resource that a path such as `.members[0].region` begins with. It ends there, and messages
// tell the rest: of a path into an attribute, Terraform shows the resource's first line in place of the attribute's.
func pathOf(attributes []spec.Attribute, text string) path.Path {
	if match := beginning.FindStringSubmatch(text); match != nil {
		for _, one := range attributes {
			if one.Name == match[1] {
				return path.Root(one.Name)
			}
		}
	}
	return path.Empty()
}
