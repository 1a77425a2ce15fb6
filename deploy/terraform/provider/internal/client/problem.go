package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Fault is one thing that is wrong with what was sent.
type Fault struct {
	Path    string `json:"path"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Breach is a safety rule that a change breaks.
type Breach struct {
	Rule    string  `json:"rule"`
	Message string  `json:"message"`
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit"`
	Unit    string  `json:"unit"`
}

// Protects says whether the rule keeps the law or what there is, and not only the traffic of now.
func (b Breach) Protects() bool { return b.Rule == "fence" || b.Rule == "deletion" }

// Problem is a refusal by control (RFC 9457).
type Problem struct {
	Status   int      `json:"status"`
	Code     string   `json:"code"`
	Title    string   `json:"title"`
	Detail   string   `json:"detail"`
	Errors   []Fault  `json:"errors"`
	Breaches []Breach `json:"breaches"`
	MayForce bool     `json:"may_force"`
	// Fingerprint names a change that others have to approve of.
	Fingerprint string `json:"fingerprint"`
	// managedBy is for whom the change was asked for.
	managedBy string
}

// The codes of problems that the provider explains itself.
const (
	unsafeChange     = "unsafe_change"
	managedByAnother = "managed_by_another"
	exists           = "exists"
	unknownReference = "unknown_reference"
)

func (p *Problem) Error() string {
	told := []string{p.explained()}
	for _, fault := range p.Errors {
		line := fault.Message
		if fault.Path != "" && fault.Code != exists {
			line = fault.Path + ": " + line
		}
		if !strings.Contains(p.Detail, fault.Message) {
			told = append(told, "  "+line)
		}
	}
	return strings.Join(told, "\n")
}

// explained is the detail in the words of who has a provider block, and no query parameters.
func (p *Problem) explained() string {
	switch p.Code {
	case unsafeChange:
		return p.unsafe()
	case managedByAnother:
		detail, _, _ := strings.Cut(p.Detail, "; nothing was changed")
		return detail + "; nothing was changed: this workspace is `" + p.managedBy + "`. Change it where it is managed, have its manager let go of it " +
			"(`gtm managed`, or POST /v1/managers:reassign), or set `take_over = \"REASON\"` in the provider block to manage it here from now on"
	}
	switch p.Status {
	case http.StatusUnauthorized:
		return p.Detail + ": see that `token` (or GTM_TOKEN) has all of its text, is of this installation, and has not ended"
	case http.StatusNotFound:
		return p.Detail + " (if the path is unknown, control is older than this provider: update it)"
	}
	return p.Detail
}

func (p *Problem) unsafe() string {
	protects, disrupts := false, false
	for _, breach := range p.Breaches {
		protects = protects || breach.Protects()
		disrupts = disrupts || !breach.Protects()
	}
	said := fmt.Sprintf("the change breaks %s; nothing was changed", count(len(p.Breaches), "safety rule"))
	if protects {
		said += "; to make it all the same, set `allow_fence_change = \"REASON\"` in the provider block, with a token of role `fence-admin`"
	}
	if disrupts {
		said += "; to move or drop that traffic all the same, set `allow_disruption = \"REASON\"` in the provider block"
	}
	if p.Fingerprint != "" {
		said += fmt.Sprintf("; and somebody else has to approve of it first: `gtm fence approve %s --reason TEXT`", p.Fingerprint)
	}
	return said
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// NotGtm says that something else answers at control's address.
type NotGtm struct {
	URL  string
	Said string
}

func (e *NotGtm) Error() string {
	return fmt.Sprintf("what answers at %s is not gtm's control (%s): check `endpoint`", e.URL, e.Said)
}

// Exists says whether a refusal means that there is something of the name already.
func Exists(err error) bool {
	var problem *Problem
	if !errors.As(err, &problem) {
		return false
	}
	for _, fault := range problem.Errors {
		if fault.Code == exists {
			return true
		}
	}
	return false
}
