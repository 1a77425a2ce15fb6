package client

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"sync"

	"terraform-provider-gtm/internal/values"
)

// Resource is one as control has it.
type Resource struct {
	// Document is its fields.
	Document map[string]any
	// Tag is its entity tag; Manager who manages it, empty: nobody's tool.
	Tag     string
	Manager string
}

// listing is one kind's resources, asked for once by however many want to know.
type listing struct {
	once  sync.Once
	known map[string]Resource
	err   error
	told  bool // somebody has the error
}

// Shelf keeps what was read of each kind, and what has been written since.
type Shelf struct {
	client *Client
	lock   sync.Mutex
	kinds  map[string]*listing
}

// NewShelf begins with nothing known.
func NewShelf(client *Client) *Shelf {
	return &Shelf{client: client, kinds: map[string]*listing{}}
}

// Forget has a kind read again when it is next asked for.
func (s *Shelf) Forget(path string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.kinds, path)
}

// ForgetAll has every kind read again when it is next asked for.
func (s *Shelf) ForgetAll() {
	s.lock.Lock()
	defer s.lock.Unlock()
	clear(s.kinds)
}

// Wrote takes in what has been written; a nil document: the resource is gone. What was never read stays unread.
func (s *Shelf) Wrote(path, name string, now Resource) {
	s.lock.Lock()
	defer s.lock.Unlock()
	kind := s.kinds[path]
	switch {
	case kind == nil || kind.known == nil:
		delete(s.kinds, path) // it is on its way, and may be of before
	case now.Document == nil:
		kind.known = maps.Clone(kind.known) // who has asked goes on with what there was
		delete(kind.known, name)
	default:
		kind.known = maps.Clone(kind.known)
		kind.known[name] = now
	}
}

// Get is the resource of a name; ok says whether there is one.
func (s *Shelf) Get(ctx context.Context, path, name string) (found Resource, ok bool, err error) {
	all, err := s.All(ctx, path)
	if err != nil {
		return Resource{}, false, err
	}
	found, ok = all[name]
	return found, ok, nil
}

// All are the resources of a kind, by name.
func (s *Shelf) All(ctx context.Context, path string) (map[string]Resource, error) {
	s.lock.Lock()
	kind := s.kinds[path]
	if kind == nil {
		kind = &listing{}
		s.kinds[path] = kind
	}
	s.lock.Unlock()
	kind.once.Do(func() {
		known, err := s.client.list(ctx, path)
		s.lock.Lock()
		kind.known, kind.err = known, err
		s.lock.Unlock()
	})
	s.lock.Lock()
	defer s.lock.Unlock()
	if kind.err == nil {
		return kind.known, nil
	}
	if s.kinds[path] == kind { // not for ever: the next may have better luck
		delete(s.kinds, path)
	}
	if IsUnreached(kind.err) && kind.told {
		return nil, &Repeated{s.client.base}
	}
	kind.told = true
	return nil, kind.err
}

func (c *Client) list(ctx context.Context, path string) (map[string]Resource, error) {
	known := map[string]Resource{}
	for cursor := ""; ; {
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor *string           `json:"next_cursor"`
			ETags      map[string]string `json:"etags"`
			ManagedBy  map[string]struct {
				Manager string `json:"manager"`
			} `json:"managed_by"`
		}
		query := url.Values{"limit": {"1000"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if _, err := c.Do(ctx, Call{Method: "GET", Path: path, Query: query, Into: &page, Reads: true}); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			var document map[string]any
			if err := values.Unmarshal(item, &document); err != nil {
				return nil, &NotGtm{c.base, err.Error()}
			}
			name, _ := document["name"].(string)
			known[name] = Resource{document, page.ETags[name], page.ManagedBy[name].Manager}
		}
		if page.NextCursor == nil {
			return known, nil
		}
		cursor = *page.NextCursor
	}
}
