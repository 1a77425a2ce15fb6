package client

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// fakeControl is control as the writer knows it, in memory: `policy:apply` makes all of a change or nothing of it.
//
//   - A document's `needs` name others ("tenants/a") that must be there, now and afterwards.
//   - A change of more than 1,000 resources is refused.
//   - One that is `poison` is always refused.
//   - The last document of kind `residency_rules` may not go: that opens a fence.
type fakeControl struct {
	lock      sync.Mutex
	resources map[string]map[string]any // "field/name" → document
	deferred  map[string]bool           // what is to go as soon as nothing keeps it
	force     bool                      // the request of now is forced
	forced    []string                  // the reasons of those that were
	tags      map[string]int
	revision  int
	applied   int // requests
	lists     int
	latency   func() time.Duration
	breaks    func() bool // whether the answer is lost after the change was made
}

func newFake() *fakeControl {
	return &fakeControl{resources: map[string]map[string]any{}, deferred: map[string]bool{}, tags: map[string]int{}, revision: 1}
}

// RoundTrip answers a request without a network.
func (f *fakeControl) RoundTrip(request *http.Request) (*http.Response, error) {
	if f.latency != nil && request.Method == http.MethodPost {
		time.Sleep(f.latency())
	}
	recorder := httptest.NewRecorder()
	if !f.serve(recorder, request) {
		return nil, fmt.Errorf("connection reset by peer")
	}
	return recorder.Result(), nil
}

func (f *fakeControl) client() *Client {
	made, err := New(Options{Endpoint: "http://127.0.0.1:1", Token: "t", ManagedBy: "terraform/test", Transport: f})
	if err != nil {
		panic(err)
	}
	return made
}

func (f *fakeControl) put(key string, document map[string]any) {
	f.resources[key], f.tags[key] = document, f.revision
}

func (f *fakeControl) has(key string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.resources[key] != nil
}

func (f *fakeControl) serve(w http.ResponseWriter, r *http.Request) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	w.Header().Set("X-GTM-Tier", "control")
	if r.Method == http.MethodGet {
		f.lists++
		_ = json.NewEncoder(w).Encode(f.list(r.URL.Path[len("/v1/"):]))
		return true
	}
	f.applied++
	if f.force = r.URL.Query().Get("force") == "true"; f.force {
		f.forced = append(f.forced, r.URL.Query().Get("force_reason"))
	}
	var body struct {
		Policy map[string][]map[string]any        `json:"policy"`
		Delete []struct{ Kind, Name string }      `json:"delete"`
		Held   []struct{ Kind, Name, Tag string } `json:"unless_changed"`
		Defer  bool                               `json:"defer"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		panic(err)
	}
	if len(body.Held) > 1000 {
		return refuse(w, 422, "invalid", "unless_changed", "too many")
	}
	for _, held := range body.Held {
		key := held.Kind + "/" + held.Name
		switch there := f.resources[key] != nil; {
		case there && held.Tag == "" && !f.deferred[key]:
			return refuse(w, 409, exists, key, exists)
		case held.Tag != "" && (!there || held.Tag != f.tag(key)):
			return refuse(w, 412, "precondition_failed", key, "changed")
		}
	}
	after := map[string]map[string]any{}
	for key, document := range f.resources {
		after[key] = document
	}
	var written []string
	for field, documents := range body.Policy {
		for _, document := range documents {
			key := field + "/" + document["name"].(string)
			after[key], written = document, append(written, key)
		}
	}
	waiting := maps.Clone(f.deferred)
	for _, key := range written {
		delete(waiting, key)
	}
	for _, one := range body.Delete {
		if body.Defer {
			waiting[one.Kind+"/"+one.Name] = true
		} else {
			delete(after, one.Kind+"/"+one.Name)
		}
	}
	if key, code := f.wrong(after); code != "" {
		return refuse(w, map[string]int{unsafeChange: 409}[code], code, key, code)
	}
	after, f.deferred = f.freed(after, waiting)
	f.resources = after
	f.revision++
	for _, key := range written {
		f.tags[key] = f.revision
	}
	deferred := []any{}
	for key := range f.deferred {
		kind, name, _ := strings.Cut(key, "/")
		deferred = append(deferred, map[string]any{"kind": kind, "name": name, "why": "it opens a fence", "refused": kind == "residency_rules"})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"revision": f.revision, "deferred": deferred})
	return f.breaks == nil || !f.breaks()
}

// freed is a policy without as much of what waits as may go, and what is kept.
func (f *fakeControl) freed(policy map[string]map[string]any, waiting map[string]bool) (map[string]map[string]any, map[string]bool) {
	for found := true; found; {
		found = false
		for key := range waiting {
			without := maps.Clone(policy)
			delete(without, key)
			if _, code := f.wrong(without); code == "" {
				policy, found = without, true
				delete(waiting, key)
			}
		}
	}
	return policy, waiting
}

// wrong is why a policy is refused, and of what.
func (f *fakeControl) wrong(after map[string]map[string]any) (key, code string) {
	for key, document := range after {
		if document["poison"] == true {
			return key, "invalid"
		}
		needs, _ := document["needs"].([]any)
		for _, other := range needs {
			if after[other.(string)] == nil {
				return key, unknownReference
			}
		}
	}
	if fences(f.resources) > 0 && fences(after) == 0 && !f.force {
		return "residency_rules", unsafeChange
	}
	return "", ""
}

func fences(resources map[string]map[string]any) (found int) {
	for key := range resources {
		if len(key) > 16 && key[:16] == "residency_rules/" {
			found++
		}
	}
	return found
}

func (f *fakeControl) tag(key string) string { return fmt.Sprintf(`"%d"`, f.tags[key]) }

func (f *fakeControl) list(field string) map[string]any {
	items, tags := []any{}, map[string]string{}
	for key, document := range f.resources {
		if len(key) > len(field) && key[:len(field)+1] == field+"/" {
			items = append(items, document)
			tags[document["name"].(string)] = f.tag(key)
		}
	}
	slices.SortFunc(items, func(a, b any) int { return len(fmt.Sprint(a)) - len(fmt.Sprint(b)) })
	return map[string]any{"items": items, "etags": tags, "next_cursor": nil, "managed_by": map[string]any{}}
}

func refuse(w http.ResponseWriter, status int, code, key, fault string) bool {
	if status == 0 {
		status = 422
	}
	problem := map[string]any{"code": code, "detail": key + " is refused", "errors": []Fault{{key, fault, fault}}}
	if code == unsafeChange {
		problem["breaches"], problem["errors"] = []Breach{{Rule: "fence", Message: "it opens a fence"}}, []Fault{}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem)
	return true
}
