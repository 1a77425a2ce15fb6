package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
	"terraform-provider-gtm/internal/values"
)

// syncAttribute is `wait_for_sync`, of the provider and of gtm_revision.
func syncAttribute(said string) spec.Attribute {
	return spec.Attribute{Name: "wait_for_sync", Type: spec.Object, Description: said, Attributes: []spec.Attribute{
		{Name: "edges", Type: spec.Set, Element: &spec.Attribute{Type: spec.String}, Description: "The edges that must have it; left out: all that are live."},
		{Name: "timeout", Type: spec.String, Description: "How long, such as `90s`. Default: `60s`."},
	}}
}

// Sync waits until edges have a revision. A nil one waits for nothing.
type Sync struct {
	client  *client.Client
	edges   []string
	timeout time.Duration

	lock sync.Mutex
	late map[int64]string
	last int64
}

// newSync reads `wait_for_sync`; nil: it is left out.
func newSync(ctx context.Context, written types.Dynamic, made *client.Client) (*Sync, error) {
	given, err := fieldsOf(ctx, syncAttribute(""), written)
	var unknown values.ErrUnknown
	if errors.As(err, &unknown) {
		return nil, fmt.Errorf("`edges` and `timeout` must be known when the plan is made")
	}
	if err != nil || given == nil {
		return nil, err
	}
	found := &Sync{client: made, timeout: time.Minute, late: map[int64]string{}}
	names, _ := given["edges"].([]any)
	for _, name := range names {
		found.edges = append(found.edges, name.(string))
	}
	if text, ok := given["timeout"].(string); ok {
		seconds, err := parseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("`timeout`: %w", err)
		}
		found.timeout = time.Duration(seconds * float64(time.Second))
	}
	return found, nil
}

// wrote is told of every revision that was made; it fails for nothing, since what is made is made.
func (s *Sync) wrote(ctx context.Context, revision int64) error {
	if s == nil {
		return nil
	}
	missing := s.Wait(ctx, revision)
	s.lock.Lock()
	defer s.lock.Unlock()
	if missing != "" {
		s.late[revision] = missing
	}
	s.last = revision
	return nil
}

// Warn says, once, which edges lack a revision that was made.
func (s *Sync) Warn(found *diag.Diagnostics) {
	if s == nil {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	for revision, missing := range s.late {
		found.AddWarning(fmt.Sprintf("Not every edge has revision %d", revision), missing)
		delete(s.late, revision)
	}
}

// Wait waits until the edges have a revision; who does not, in words, after the time is over.
func (s *Sync) Wait(ctx context.Context, revision int64) string {
	for end := time.Now().Add(s.timeout); ; {
		missing, err := s.missing(ctx, revision)
		if err != nil {
			missing = []string{err.Error()}
		}
		if len(missing) == 0 {
			return ""
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Sprintf("within %s: %s", s.timeout, strings.Join(missing, "; "))
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (s *Sync) missing(ctx context.Context, revision int64) (missing []string, err error) {
	edges, err := allEdges(ctx, s.client)
	if err != nil {
		return nil, err
	}
	live := 0
	for _, one := range edges {
		if one.Live {
			live++
		}
		wanted := one.Live
		if len(s.edges) > 0 {
			wanted = slices.Contains(s.edges, one.Name)
		}
		if wanted && (!one.Live || one.Revision < revision) {
			state := "live"
			if !one.Live {
				state = "not live"
			}
			missing = append(missing, fmt.Sprintf("edge `%s` (%s) has revision %d", one.Name, state, one.Revision))
		}
	}
	for _, name := range s.edges {
		if !slices.ContainsFunc(edges, func(one edge) bool { return one.Name == name }) {
			missing = append(missing, fmt.Sprintf("control has never heard of an edge `%s`", name))
		}
	}
	if len(s.edges) == 0 && live == 0 {
		missing = append(missing, "no edge is live")
	}
	return missing, nil
}
