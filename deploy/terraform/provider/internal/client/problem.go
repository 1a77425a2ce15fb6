package client

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong with what was sent.
type Fault struct {
	Path    string `json:"path"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Problem is a refusal by control (RFC 9457).
type Problem struct {
	Status int     `json:"status"`
	Code   string  `json:"code"`
	Title  string  `json:"title"`
	Detail string  `json:"detail"`
	Errors []Fault `json:"errors"`
}

func (p *Problem) Error() string {
	told := []string{p.Detail}
	for _, fault := range p.Errors {
		line := fault.Message
		if fault.Path != "" {
			line = fault.Path + ": " + line
		}
		if line != p.Detail {
			told = append(told, "  "+line)
		}
	}
	return strings.Join(told, "\n")
}

// NotGtm says that something else answers at control's address.
type NotGtm struct {
	URL  string
	Said string
}

func (e *NotGtm) Error() string {
	return fmt.Sprintf("what answers at %s is not gtm's control (%s): check `endpoint`", e.URL, e.Said)
}
