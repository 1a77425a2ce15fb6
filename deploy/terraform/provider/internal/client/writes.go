package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"terraform-provider-gtm/internal/spec"
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

// Writer sends writes together: those that come while others are on their way go in one change after them. Ten at once
// of five hundred make some fifty revisions.
//
// Laws:
//  1. A write that stands alone in what is wrong with it fails alone: a batch that is refused is made again one by one.
//  2. Order is no reason to fail: what is refused because of what is there (a name that is not there yet) is tried again together with
//     each batch that comes after, and fails once none has come for a while. A deletion that something keeps (a service that still
//     names the region, a fence that the rule alone holds) waits at control, for Terraform changes what keeps it only after it: the change
//     that lets it go makes it, in the same revision.
//  3. Nothing is said to be written before control has it.
type Writer struct {
	client  *Client
	shelf   *Shelf
	force   Force
	comment string
	after   func(ctx context.Context, revision int64) error

	begun   atomic.Bool
	lock    sync.Mutex
	waiting []*pending
	held    []*pending
	owed    map[named]*pending // deletions that wait at control
	busy    bool
	took    time.Duration // the last change
}

// written is how a write ended: the entity tag that the resource has now.
// note says what is to be known of a deletion that waits.
type written struct {
	tag  string
	note string
	err  error
}

type pending struct {
	write Write
	done  chan written
	err   error
}

// patience is for how long a write that others may make possible waits for them.
const patience = 2 * time.Second

// mostAtOnce is how many resources control takes the entity tags of in one change: `-parallelism` may be more.
const mostAtOnce = 1000

// A write waits for others to come along for a fifth of what the last change took, within these bounds. Without,
// Terraform's ten would become two groups of five that take turns.
const (
	leastPause = 20 * time.Millisecond
	mostPause  = 400 * time.Millisecond
)

// NewWriter says with which words changes are made; after is called with the revision of each, before it counts as made.
func NewWriter(client *Client, shelf *Shelf, force Force, comment string, after func(context.Context, int64) error) *Writer {
	return &Writer{client: client, shelf: shelf, force: force, comment: comment, after: after, owed: map[named]*pending{}}
}

// Begun says whether anything has been written, or tried to be: Terraform applies, and plans no more.
func (w *Writer) Begun() bool { return w.begun.Load() }

// Begin says that something is about to be written by other ways.
func (w *Writer) Begin() { w.begun.Store(true) }

// Do makes a write, together with others that wait, and returns once it is in force or refused; the entity tag that the
// resource has then, empty if it is gone. note: what is to be known of a deletion that control holds back.
func (w *Writer) Do(ctx context.Context, write Write) (tag, note string, err error) {
	w.begun.Store(true)
	one := &pending{write: write, done: make(chan written, 1)}
	w.lock.Lock()
	w.waiting = append(w.waiting, one)
	leads := !w.busy
	w.busy = true
	w.lock.Unlock()
	if leads {
		go w.work(context.WithoutCancel(ctx))
	}
	end := <-one.done // also when Terraform is told to stop: what has been written must be in its state
	return end.tag, end.note, end.err
}

func (w *Writer) work(ctx context.Context) {
	for since := time.Now(); ; {
		w.gather()
		w.lock.Lock()
		now := min(len(w.waiting), max(1, mostAtOnce-len(w.held)))
		batch := slices.Clone(w.waiting[:now])
		w.waiting = w.waiting[now:]
		if len(batch) == 0 && len(w.held) == 0 {
			w.busy = false
			w.lock.Unlock()
			return
		}
		w.lock.Unlock()
		if len(batch) > 0 {
			w.send(ctx, append(w.held, batch...))
			since = time.Now()
			continue
		}
		if time.Since(since) < patience {
			time.Sleep(patience / 20)
			continue
		}
		for _, one := range w.held {
			one.done <- written{err: one.err}
		}
		w.held = nil
	}
}

// gather waits a moment for as many writes as Terraform makes at once: each change is compiled and judged whole, however
// few resources it has.
func (w *Writer) gather() {
	for last := -1; ; {
		w.lock.Lock()
		now := len(w.waiting)
		w.lock.Unlock()
		if now == last || now == 0 {
			return
		}
		last = now
		time.Sleep(min(max(w.took/5, leastPause), mostPause))
	}
}

// send makes writes in one change, or, if that is refused, one by one; those that others may make possible are held.
func (w *Writer) send(ctx context.Context, batch []*pending) {
	w.held = nil
	began := time.Now()
	tags, notes, revision, err := w.apply(ctx, batch)
	w.took = time.Since(began)
	var problem *Problem
	if err == nil && w.after != nil {
		err = w.after(ctx, revision)
	}
	if err != nil && errors.As(err, &problem) && problem.Status < 500 {
		if len(batch) > 1 {
			w.each(ctx, batch)
			return
		}
		if problem.dependsOnOthers() {
			batch[0].err = err
			w.held = append(w.held, batch[0])
			return
		}
	}
	for _, one := range batch {
		w.shelve(one.write, tags)
		one.done <- written{tags[nameOf(one)], notes[nameOf(one)], err}
	}
}

// shelve takes in what has been written, or forgets what may have been.
func (w *Writer) shelve(write Write, tags map[named]string) {
	tag, told := tags[named{write.Field, write.Name}]
	if !told {
		w.shelf.Forget(write.Path)
		return
	}
	w.shelf.Wrote(write.Path, write.Name, Resource{write.Document, tag, w.client.options.ManagedBy})
}

func (w *Writer) each(ctx context.Context, batch []*pending) {
	var held []*pending
	for _, one := range batch {
		w.send(ctx, []*pending{one})
		held = append(held, w.held...)
	}
	w.held = held
	if len(held) > 0 && len(held) < len(batch) { // those that were made may have made these possible
		w.send(ctx, held)
	}
}

// dependsOnOthers says whether other writes may make this one possible.
func (p *Problem) dependsOnOthers() bool {
	return p.Code == unsafeChange || p.Status == http.StatusUnprocessableEntity
}

// named is a resource, as control names it.
type named struct{ kind, name string }

func nameOf(one *pending) named { return named{one.write.Field, one.write.Name} }

// applied is what control says of a change.
type applied struct {
	Revision int64 `json:"revision"`
	Held     []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		Tag  string `json:"tag"`
	} `json:"held"`
	Deferred []struct {
		Kind    string `json:"kind"`
		Name    string `json:"name"`
		Why     string `json:"why"`
		Refused bool   `json:"refused"`
	} `json:"deferred"`
}

// apply sends a batch; the revision that it made, what is written has for entity tags now, and what is to be known of deletions that the
// safety rules keep: of the batch, and of earlier ones that only now nothing names any more. Where a reason is given to break these rules,
// such deletions are made for it.
func (w *Writer) apply(ctx context.Context, batch []*pending) (tags, notes map[named]string, revision int64, err error) {
	var done applied
	query := w.force.Query()
	err = w.force.Do(ctx, w.client, Call{Method: http.MethodPost, Path: "/v1/policy:apply", Query: query, Body: w.body(batch), Into: &done})
	tags, notes = map[named]string{}, map[named]string{}
	for _, one := range done.Held {
		tags[named{one.Kind, one.Name}] = one.Tag
	}
	if err != nil {
		return tags, notes, done.Revision, err
	}
	for _, one := range batch {
		if one.write.Document == nil {
			w.owed[nameOf(one)] = one
		}
	}
	refused, notes := w.owes(done, batch)
	if len(refused) == 0 || w.force.any() == "" {
		return tags, notes, done.Revision, nil
	}
	query.Set("force", "true")
	query.Set("force_reason", w.force.any())
	var again applied
	if _, err = w.client.Do(ctx, Call{Method: http.MethodPost, Path: "/v1/policy:apply", Query: query, Body: w.body(refused), Into: &again}); err != nil {
		notes[nameOf(batch[0])] = err.Error()
		return tags, notes, done.Revision, nil
	}
	_, notes = w.owes(again, batch)
	return tags, notes, max(again.Revision, done.Revision), nil
}

// owes takes in which of this run's deletions still wait: those that the safety rules keep, and what is to be told of these, at the write of
// the batch that asks for it or else at the first.
func (w *Writer) owes(done applied, batch []*pending) (refused []*pending, notes map[named]string) {
	left, told := map[named]*pending{}, map[named][]string{}
	for _, one := range done.Deferred {
		owed := w.owed[named{one.Kind, one.Name}]
		if owed == nil {
			continue // another run's
		}
		left[nameOf(owed)] = owed
		if one.Refused {
			refused = append(refused, owed)
			to := batch[0]
			if slices.Contains(batch, owed) {
				to = owed
			}
			kind, _ := spec.Find(one.Kind)
			told[nameOf(to)] = append(told[nameOf(to)], fmt.Sprintf("%s `%s` stays: %s", strings.ReplaceAll(kind.Name, "_", " "), one.Name, one.Why))
		}
	}
	w.owed, notes = left, map[named]string{}
	for to, lines := range told {
		notes[to] = strings.Join(lines, "\n")
	}
	return refused, notes
}

func (w *Writer) body(batch []*pending) map[string]any {
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
	body := map[string]any{
		"policy": policy, "partial": true, "delete": deletes, "unless_changed": held, "comment": w.comment,
	}
	if len(deletes) > 0 {
		body["defer"] = true
	}
	return body
}
