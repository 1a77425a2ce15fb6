package client

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
)

// Force is what is said of writes that break a safety rule, or touch what others manage. Each is a reason; empty: they fail.
type Force struct {
	FenceChange string
	Disruption  string
	TakeOver    string
}

// Query is what is said of others' resources with every change.
func (f Force) Query() url.Values {
	if f.TakeOver == "" {
		return url.Values{}
	}
	return url.Values{"on_managed": {"take_over"}, "managed_reason": {f.TakeOver}}
}

// Do makes a change; if control refuses it for rules for which a reason is given, once more with that.
func (f Force) Do(ctx context.Context, with *Client, call Call) error {
	query := url.Values{}
	for name, values := range call.Query {
		query[name] = values
	}
	call.Query = query
	_, err := with.Do(ctx, call)
	if reason := f.reason(err); reason != "" {
		query.Set("force", "true")
		query.Set("force_reason", reason)
		_, err = with.Do(ctx, call)
	}
	return err
}

// reason is why a refused change may be made all the same: there is one for every rule that it breaks, or none.
func (f Force) reason(err error) string {
	var problem *Problem
	if !errors.As(err, &problem) || problem.Code != unsafeChange {
		return ""
	}
	return f.Covers(problem.Breaches)
}

// any is whatever reason there is; empty: none.
func (f Force) any() string {
	if f.FenceChange != "" && f.Disruption != "" && f.FenceChange != f.Disruption {
		return f.FenceChange + "; " + f.Disruption
	}
	return f.FenceChange + strings.TrimPrefix(f.Disruption, f.FenceChange)
}

// Covers is the reason why these rules may be broken; empty: not all of them may.
func (f Force) Covers(breaches []Breach) string {
	var said []string
	for _, breach := range breaches {
		reason := f.Disruption
		if breach.Protects() {
			reason = f.FenceChange
		}
		if reason == "" {
			return ""
		}
		if !slices.Contains(said, reason) {
			said = append(said, reason)
		}
	}
	return strings.Join(said, "; ")
}
