package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// Write is one resource to be put or deleted.
type Write struct {
	Field string // of a policy: `regions`
	Path  string // of its kind: `/v1/regions`
	Name  string
	// Document is what it is to be; nil: it is deleted.
	Document map[string]any
	// Tag is the entity tag that it must have; empty: there must be none of the name.
	Tag string
}

// Force is what is said of writes that break a safety rule, or touch what others manage.
type Force struct {
	Reason        string
	OnManaged     string
	ManagedReason string
}

// Writer sends writes together: those that come while others are on their way go in one change after them. Ten at once
// of five hundred make some fifty revisions, and none of them waits for the rest of its batch to be made by hand.
//
// Law: a write that stands alone in what is wrong with it fails alone. A batch that is refused is made again one by one.
type Writer struct {
	client  *Client
	shelf   *Shelf
	force   Force
	comment string

	lock    sync.Mutex
	waiting []*pending
	busy    bool
}

type pending struct {
	write Write
	done  chan error
}

// NewWriter says with which words changes are made.
func NewWriter(client *Client, shelf *Shelf, force Force, comment string) *Writer {
	return &Writer{client: client, shelf: shelf, force: force, comment: comment}
}

// Do makes a write, together with others that wait, and returns once it is in force or refused.
func (w *Writer) Do(ctx context.Context, write Write) error {
	one := &pending{write, make(chan error, 1)}
	w.lock.Lock()
	w.waiting = append(w.waiting, one)
	leads := !w.busy
	w.busy = true
	w.lock.Unlock()
	if leads {
		go w.work(context.WithoutCancel(ctx))
	}
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) work(ctx context.Context) {
	for {
		w.lock.Lock()
		batch := w.waiting
		w.waiting = nil
		if len(batch) == 0 {
			w.busy = false
			w.lock.Unlock()
			return
		}
		w.lock.Unlock()
		w.send(ctx, batch)
	}
}

func (w *Writer) send(ctx context.Context, batch []*pending) {
	err := w.apply(ctx, batch)
	var problem *Problem
	if err != nil && len(batch) > 1 && errors.As(err, &problem) && problem.Status < 500 {
		for _, one := range batch {
			w.send(ctx, []*pending{one})
		}
		return
	}
	for _, one := range batch {
		w.shelf.Forget(one.write.Path)
		one.done <- err
	}
}

func (w *Writer) apply(ctx context.Context, batch []*pending) error {
	policy, deletes, held := map[string][]any{}, []any{}, []any{}
	for _, one := range batch {
		write := one.write
		named := map[string]any{"kind": write.Field, "name": write.Name}
		held = append(held, map[string]any{"kind": write.Field, "name": write.Name, "tag": write.Tag})
		if write.Document == nil {
			deletes = append(deletes, named)
		} else {
			policy[write.Field] = append(policy[write.Field], write.Document)
		}
	}
	query := url.Values{}
	if w.force.Reason != "" {
		query.Set("force", "true")
		query.Set("force_reason", w.force.Reason)
	}
	if w.force.OnManaged != "" {
		query.Set("on_managed", w.force.OnManaged)
		query.Set("managed_reason", w.force.ManagedReason)
	}
	body := map[string]any{
		"policy": policy, "partial": true, "delete": deletes, "unless_changed": held, "comment": w.comment,
	}
	_, err := w.client.Do(ctx, Call{Method: http.MethodPost, Path: "/v1/policy:apply", Query: query, Body: body})
	return err
}

// Exists says whether a refusal means that a name is taken.
func Exists(err error, write Write) bool {
	var problem *Problem
	return errors.As(err, &problem) && problem.Status == http.StatusPreconditionFailed && write.Tag == "" && strings.Contains(problem.Detail, write.Name)
}
