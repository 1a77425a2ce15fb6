package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

// judge is control as plans know it: tenants whose display name is "bad" are refused; residency rules that go without
// another in their place open a fence; services with the display name `odd` are told as findings.
type judge struct {
	lock    sync.Mutex
	latency func() time.Duration
	asked   []map[string][]string // by what happens, what was asked about
	status  int                   // of every answer, if it is not 0
	names   string                // the region that the service `s` names, which `manager` manages
	manager string
	gone    error // of every request
}

type question struct {
	Policy map[string][]map[string]any   `json:"policy"`
	Delete []struct{ Kind, Name string } `json:"delete"`
}

func (j *judge) RoundTrip(request *http.Request) (*http.Response, error) {
	if j.gone != nil {
		return nil, j.gone
	}
	recorder := httptest.NewRecorder()
	recorder.Header().Set("X-GTM-Tier", "control")
	if request.Method == http.MethodGet {
		one := map[string]any{"name": "r0", "lat": 1, "admin_state": "draining", "draining_since": "x"}
		if strings.HasSuffix(request.URL.Path, "/services") {
			one = map[string]any{"name": "s"}
		}
		managed := map[string]any{"s": map[string]any{"manager": j.manager}}
		_ = json.NewEncoder(recorder).Encode(map[string]any{"items": []any{one}, "managed_by": managed})
		return recorder.Result(), nil
	}
	var asked question
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
		return nil, err
	}
	if j.latency != nil {
		time.Sleep(j.latency())
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	found := map[string][]string{}
	for field, documents := range asked.Policy {
		for _, document := range documents {
			key := field + "/" + document["name"].(string)
			if state, ok := document["admin_state"].(string); ok {
				key += "=" + state
			}
			found["put"] = append(found["put"], key)
		}
	}
	for _, one := range asked.Delete {
		found["delete"] = append(found["delete"], one.Kind+"/"+one.Name)
	}
	slices.Sort(found["put"])
	slices.Sort(found["delete"])
	j.asked = append(j.asked, found)
	j.answer(recorder, asked)
	return recorder.Result(), nil
}

func (j *judge) answer(w *httptest.ResponseRecorder, asked question) {
	if j.status != 0 {
		w.WriteHeader(j.status)
		_, _ = w.WriteString(`{"detail": "not now"}`)
		return
	}
	var faults, findings []client.Fault
	for _, one := range asked.Policy["tenants"] {
		if one["display_name"] == "bad" {
			faults = append(faults, client.Fault{Path: fmt.Sprintf("tenants.%s.display_name", one["name"]), Message: "is bad"})
		}
	}
	for _, one := range asked.Policy["services"] {
		if one["display_name"] == "odd" {
			findings = append(findings, client.Fault{Path: fmt.Sprintf("services.%s.ttl", one["name"]), Message: "is odd"})
		}
	}
	named := j.names
	for _, one := range asked.Policy["services"] {
		if one["name"] == "s" {
			named, _ = one["display_name"].(string)
		}
	}
	for _, one := range asked.Delete {
		if one.Kind == "services" && one.Name == "s" {
			named = ""
		}
	}
	for _, one := range asked.Delete {
		if one.Kind == "regions" && one.Name == named {
			faults = append(faults, client.Fault{Path: "services.s.members[0].region", Code: "unknown_reference", Message: "there is no region"})
		}
	}
	var breaches []client.Breach
	if len(asked.Policy["residency_rules"]) == 0 {
		for _, one := range asked.Delete {
			if one.Kind == "residency_rules" {
				breaches = append(breaches, client.Breach{Rule: "fence", Message: fmt.Sprintf("rule `%s` (deleted) would no longer keep", one.Name)})
			}
		}
	}
	if len(faults) > 0 {
		w.WriteHeader(422)
		_ = json.NewEncoder(w).Encode(map[string]any{"detail": "no", "errors": faults})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"findings": findings, "safety": map[string]any{"breaches": breaches}})
}

func (j *judge) gather(force client.Force) *Gather {
	made, err := client.New(client.Options{Endpoint: "http://localhost", Token: "t", ManagedBy: "terraform/test", Transport: j})
	if err != nil {
		panic(err)
	}
	shelf := client.NewShelf(made)
	return newGather(made, shelf, client.NewWriter(made, shelf, force, "", nil), force)
}

// telling is one resource that Terraform plans.
type telling struct {
	field, name string
	what        change
	state       string // of a region, if it is that which is told
	same        bool   // it is planned as it is
	after       []int  // those that Terraform plans before it
	pause       time.Duration
}

func put(field, name, display string) telling {
	return telling{field: field, name: name, what: change{document: map[string]any{"name": name, "display_name": display}}}
}

// plan tells all as Terraform would: so many at once, each after those that it refers to. What each was told back.
func plan(g *Gather, parallelism int, all []telling) []diag.Diagnostics {
	said := make([]diag.Diagnostics, len(all))
	done := make([]chan struct{}, len(all))
	for i := range all {
		done[i] = make(chan struct{})
	}
	slots := make(chan struct{}, parallelism)
	var wait sync.WaitGroup
	for i, one := range all {
		wait.Go(func() {
			defer close(done[i])
			for _, before := range one.after {
				<-done[before]
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			time.Sleep(one.pause)
			if one.state != "" {
				said[i] = g.TellState(context.Background(), one.name, one.state)
				return
			}
			kind, _ := spec.Find(one.field)
			if one.same {
				said[i] = g.Unchanged(context.Background(), kind, one.name)
				return
			}
			said[i] = g.Tell(context.Background(), kind, one.name, one.what)
		})
	}
	wait.Wait()
	return said
}

func texts(said []diag.Diagnostics) (found []string) {
	for i, all := range said {
		for _, one := range all {
			where := ""
			if with, ok := one.(diag.DiagnosticWithPath); ok {
				where = with.Path().String()
			}
			found = append(found, fmt.Sprintf("%d %s %s %s: %s", i, one.Severity(), where, one.Summary(), one.Detail()))
		}
	}
	return found
}

func count(found []string, part string) (n int) {
	for _, one := range found {
		if strings.Contains(one, part) {
			n++
		}
	}
	return n
}

// TestRandomPlans: the last question holds all that was told, and what is wrong or odd in the end is said, once.
func TestRandomPlans(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			j := &judge{}
			slow := time.Duration(1 + r.IntN(3000))
			j.latency = func() time.Duration { return time.Duration(r.Int64N(int64(slow))) * time.Millisecond }
			all, expected, bad, odd := randomPlan(r)
			said := texts(plan(j.gather(client.Force{}), 10, all))
			last := j.asked[len(j.asked)-1]
			for what, keys := range expected {
				slices.Sort(keys)
				if !slices.Equal(last[what], keys) {
					t.Errorf("seed %d: the last question has %s %v instead of %v", seed, what, last[what], keys)
				}
			}
			for _, name := range bad {
				if n := count(said, "tenants."+name+".display_name: is bad"); n != 1 {
					t.Errorf("seed %d: that %s is bad is said %d times: %v", seed, name, n, said)
				}
			}
			for _, name := range odd {
				if n := count(said, "services."+name+".ttl: is odd"); len(bad) == 0 && n != 1 {
					t.Errorf("seed %d: that %s is odd is said %d times: %v", seed, name, n, said)
				}
			}
			if len(bad)+len(odd) == 0 && len(said) > 0 {
				t.Errorf("seed %d: %v", seed, said)
			}
			if len(j.asked) > 1+len(all) {
				t.Errorf("seed %d: %d questions of %d resources", seed, len(j.asked), len(all))
			}
		})
	}
}

func randomPlan(r *rand.Rand) (all []telling, expected map[string][]string, bad, odd []string) {
	expected = map[string][]string{}
	for i := range 1 + r.IntN(40) {
		name := fmt.Sprintf("n%d", i)
		one := put([]string{"tenants", "services", "regions"}[r.IntN(3)], name, "")
		switch {
		case r.IntN(8) == 0:
			one = telling{field: "jurisdictions", name: name}
		case one.field == "tenants" && r.IntN(15) == 0:
			one.what.document["display_name"], bad = "bad", append(bad, name)
		case one.field == "services" && r.IntN(6) == 0:
			one.what.document["display_name"], odd = "odd", append(odd, name)
		}
		if i > 0 && r.IntN(3) == 0 {
			one.after = []int{r.IntN(i)}
		}
		one.pause = time.Duration(r.IntN(100)) * time.Millisecond
		what := map[bool]string{true: "delete", false: "put"}[one.what.document == nil]
		expected[what] = append(expected[what], one.field+"/"+name)
		all = append(all, one)
	}
	return all, expected, bad, odd
}

// TestQuestionsAreFew: while control is asked, others get on, and are part of the next question.
func TestQuestionsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &judge{latency: func() time.Duration { return time.Second }}
		var all []telling
		for i := range 500 {
			all = append(all, put("tenants", fmt.Sprintf("t%d", i), ""))
		}
		plan(j.gather(client.Force{}), 10, all)
		if len(j.asked) > 2 {
			t.Errorf("%d questions", len(j.asked))
		}
	})
}

func TestOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &judge{latency: func() time.Duration { return 5 * quiet }}
		var all []telling
		for i := range 40 {
			one := put("tenants", fmt.Sprintf("t%d", i), "")
			one.pause = time.Duration(i) * quiet * 3 / 2
			all = append(all, one)
		}
		plan(j.gather(client.Force{}), len(all), all)
		if len(j.asked) > 15 {
			t.Errorf("%d questions", len(j.asked))
		}
	})
}

// TestARuleInPlaceOfAnother: whatever comes first, what is put right within the same plan is no error; what is not is one.
func TestARuleInPlaceOfAnother(t *testing.T) {
	gone, come := telling{field: "residency_rules", name: "old"}, put("residency_rules", "new", "")
	late := come
	late.pause = puttings / 2
	for name, one := range map[string]struct {
		all   []telling
		force client.Force
		said  string
	}{
		"together":        {[]telling{gone, come}, client.Force{}, ""},
		"later":           {[]telling{gone, late}, client.Force{}, ""},
		"alone":           {[]telling{gone, put("tenants", "t", "")}, client.Force{}, "0 Error"},
		"for a reason":    {[]telling{gone}, client.Force{FenceChange: "why"}, "0 Warning"},
		"for another one": {[]telling{gone}, client.Force{Disruption: "why"}, "0 Error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := texts(plan((&judge{}).gather(one.force), 10, one.all))
				if (one.said == "") != (len(said) == 0) || (one.said != "" && !strings.HasPrefix(said[0], one.said)) {
					t.Errorf("%q", said)
				}
			})
		})
	}
}

// TestARegionThatGoesBeforeItsService: Terraform plans a region that goes before the service that named it. Whether that one still does is
// said once it is planned, as it is or with its change; nobody else's service is waited for.
func TestARegionThatGoesBeforeItsService(t *testing.T) {
	gone := telling{field: "regions", name: "fra"}
	later := func(one telling) telling {
		one.after, one.pause = []int{0}, 3*puttings
		return one
	}
	same := later(telling{field: "services", name: "s", same: true})
	const wrong = "services.s.members[0].region: there is no region"
	for name, one := range map[string]struct {
		manager string
		all     []telling
		said    int
		who     string
	}{
		"it lets go":              {"terraform/test", []telling{gone, later(put("services", "s", "dub"))}, 0, ""},
		"it goes, too":            {"terraform/test", []telling{gone, later(telling{field: "services", name: "s"})}, 0, ""},
		"it goes before":          {"terraform/test", []telling{{field: "services", name: "s"}, later(gone)}, 0, ""},
		"it names it still":       {"terraform/test", []telling{gone, later(put("services", "s", "fra"))}, 1, "1 "},
		"it stays as it is":       {"terraform/test", []telling{gone, same}, 1, "1 "},
		"it was planned as it is": {"terraform/test", []telling{{field: "services", name: "s", same: true}, later(gone)}, 1, "1 "},
		"it is another's":         {"terraform/other", []telling{gone}, 1, "0 "},
		"it is nobody's":          {"", []telling{gone}, 1, "0 "},
	} {
		for _, parallelism := range []int{1, 10} {
			t.Run(fmt.Sprintf("%s, %d at once", name, parallelism), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := &judge{names: "fra", manager: one.manager}
					said := texts(plan(j.gather(client.Force{}), parallelism, one.all))
					if len(said) != one.said || count(said, wrong) != one.said || (one.said > 0 && !strings.HasPrefix(said[0], one.who)) {
						t.Errorf("%q", said)
					}
				})
			})
		}
	}
}

func TestAFaultIsSaidAtItsAttribute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := texts(plan((&judge{}).gather(client.Force{}), 10, []telling{put("tenants", "good", ""), put("tenants", "wrong", "bad"), put("regions", "r", "")}))
		if len(said) != 1 || !strings.HasPrefix(said[0], "1 Error display_name") {
			t.Errorf("%q", said)
		}
	})
}

func TestStates(t *testing.T) {
	state := telling{field: "regions", name: "r0", state: "active"}
	for name, one := range map[string]struct {
		all      []telling
		expected string
	}{
		"of a region that stays":   {[]telling{state}, "map[put:[regions/r0=active]]"},
		"of a region that changes": {[]telling{put("regions", "r0", ""), state}, "map[put:[regions/r0=active]]"},
		"of a region that goes":    {[]telling{state, {field: "regions", name: "r0"}}, "map[delete:[regions/r0]]"},
		"of a region that is not":  {[]telling{{field: "regions", name: "none", state: "active"}}, "map[]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := &judge{}
			said := texts(plan(j.gather(client.Force{}), 10, one.all))
			for _, list := range j.asked {
				for what, keys := range list {
					if len(keys) == 0 {
						delete(list, what)
					}
				}
			}
			if got := fmt.Sprint(j.asked[len(j.asked)-1]); got != one.expected || len(said) > 0 {
				t.Errorf("%s: %s, %v", name, got, said)
			}
		})
	}
}

// TestWhatCannotBeChecked is a warning: an older control, one that is away, values that are known later.
func TestWhatCannotBeChecked(t *testing.T) {
	for _, status := range []int{404, 403, 500} {
		synctest.Test(t, func(t *testing.T) {
			said := texts(plan((&judge{status: status}).gather(client.Force{}), 10, []telling{put("tenants", "a", ""), put("tenants", "b", "bad")}))
			if len(said) != 1 || !strings.Contains(said[0], "Warning  This plan is not checked as a whole") {
				t.Errorf("%d: %q", status, said)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		unknown := telling{field: "tenants", name: "u", what: change{unknown: "weight is not known before apply"}}
		for _, other := range []telling{put("tenants", "a", ""), put("tenants", "a", "bad")} {
			said := texts(plan((&judge{}).gather(client.Force{}), 10, []telling{unknown, other}))
			if len(said) != 1 || !strings.Contains(said[0], "Warning") || !strings.Contains(said[0], "weight is not known") {
				t.Errorf("%q", said)
			}
		}
	})
}

// TestAControlThatIsGone fails the plan: once that is said, reads that fail for it say nothing more.
func TestAControlThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &judge{gone: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
		said := texts(plan(j.gather(client.Force{}), 10, []telling{put("tenants", "a", ""), put("tenants", "b", "")}))
		if len(said) != 1 || !strings.Contains(said[0], "Error  Control cannot be reached") || !strings.Contains(said[0], "refused") {
			t.Errorf("%q", said)
		}
	})
}

func TestNothingIsAskedOnceItIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &judge{}
		g := j.gather(client.Force{})
		g.writer.Begin()
		if said := texts(plan(g, 10, []telling{put("tenants", "a", "bad")})); len(said)+len(j.asked) > 0 {
			t.Errorf("%q, %v", said, j.asked)
		}
	})
}

func TestWhose(t *testing.T) {
	for where, expected := range map[string]string{
		"services.chat.members[0].region":     "services chat members",
		"services.chat":                       "services chat ",
		"services.chat.members[0].ttl":        "services chat members",
		"zones.a.example.com.records[0].name": "zones a.example.com records",
		"zones.a.example.com":                 "zones a.example.com ",
		"residency_rules.x.what":              "residency_rules x.what ",
		"nothing.x":                           "  ",
	} {
		of, at := whose(where)
		if got := of.field + " " + of.name + " " + at.String(); got != expected {
			t.Errorf("%s: %q", where, got)
		}
	}
}
