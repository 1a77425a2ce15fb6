package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// outcome is what became of each write, by "field/name".
type outcome struct {
	fake   *fakeControl
	errs   map[string]error
	early  []string // said to be written before control had it
	notes  map[string]string
	writer *Writer
}

// run makes writes at once or apart, as wait says, each from a goroutine of its own.
func run(fake *fakeControl, force Force, writes []Write, wait func(int) time.Duration) *outcome {
	made := fake.client()
	found := &outcome{fake: fake, errs: map[string]error{}, notes: map[string]string{}, writer: NewWriter(made, NewShelf(made), force, "", nil)}
	var lock sync.Mutex
	var all sync.WaitGroup
	for i, write := range writes {
		all.Go(func() {
			time.Sleep(wait(i))
			_, note, err := found.writer.Do(context.Background(), write)
			lock.Lock()
			defer lock.Unlock()
			key := write.Field + "/" + write.Name
			found.notes[key] = note
			if write.Document != nil && err == nil && !fake.has(key) {
				found.early = append(found.early, key)
			}
			found.errs[key] = err
		})
	}
	all.Wait()
	return found
}

func create(key string, needs ...string) Write {
	var field, name string
	for i := range key {
		if key[i] == '/' {
			field, name = key[:i], key[i+1:]
		}
	}
	listed := []any{}
	for _, one := range needs {
		listed = append(listed, one)
	}
	return Write{Field: field, Path: "/v1/" + field, Name: name, Document: map[string]any{"name": name, "needs": listed}}
}

func remove(fake *fakeControl, key string) Write {
	write := create(key)
	write.Document, write.Tag = nil, fake.tag(key)
	return write
}

func poisoned(key string) Write {
	write := create(key)
	write.Document["poison"] = true
	return write
}

func atOnce(int) time.Duration { return 0 }

func (o *outcome) check(t *testing.T, expected map[string]bool) {
	t.Helper()
	for key, good := range expected {
		if (o.errs[key] == nil) != good {
			t.Errorf("%s: %v", key, o.errs[key])
		}
	}
	if len(o.early) > 0 {
		t.Errorf("said to be written, and are not: %v", o.early)
	}
	synctest.Wait()
	o.writer.lock.Lock()
	defer o.writer.lock.Unlock()
	if o.writer.busy || len(o.writer.held)+len(o.writer.waiting) > 0 {
		t.Error("the writer still has something to do")
	}
}

func TestOneThatIsWrongFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		writes := []Write{poisoned("tenants/bad")}
		expected := map[string]bool{"tenants/bad": false}
		for i := range 20 {
			key := fmt.Sprintf("tenants/t%d", i)
			writes, expected[key] = append(writes, create(key)), true
		}
		run(fake, Force{}, writes, atOnce).check(t, expected)
	})
}

func TestManyGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.latency = func() time.Duration { return 50 * time.Millisecond }
		var writes []Write
		expected := map[string]bool{}
		for i := range 200 {
			key := fmt.Sprintf("tenants/t%d", i)
			writes, expected[key] = append(writes, create(key)), true
		}
		found := run(fake, Force{}, writes, func(i int) time.Duration { return time.Duration(i) * time.Millisecond })
		found.check(t, expected)
		if fake.applied > 200/40 {
			t.Errorf("%d changes", fake.applied)
		}
	})
}

// What a write needs is made by one that stands behind it in the same batch, whole and refused for a third.
func TestOrderWithinABatchIsNoReasonToFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.put("residency_rules/old", map[string]any{"name": "old"})
		writes := []Write{
			remove(fake, "residency_rules/old"), create("services/s", "regions/r"), poisoned("tenants/bad"), create("regions/r", "zones/z"),
			create("residency_rules/new"), create("zones/z"),
		}
		run(fake, Force{}, writes, atOnce).check(t, map[string]bool{
			"residency_rules/old": true, "services/s": true, "tenants/bad": false, "regions/r": true, "residency_rules/new": true, "zones/z": true,
		})
	})
}

// What is created waits a while for what it needs.
func TestWhatOthersMakePossibleWaitsForThem(t *testing.T) {
	for _, late := range []struct {
		after time.Duration
		good  bool
	}{{patience / 2, true}, {3 * patience, false}} {
		synctest.Test(t, func(t *testing.T) {
			writes := []Write{create("services/s", "regions/r"), create("regions/r")}
			found := run(newFake(), Force{}, writes, func(i int) time.Duration { return time.Duration(i) * late.after })
			found.check(t, map[string]bool{"services/s": late.good, "regions/r": true})
			var problem *Problem
			if err := found.errs["services/s"]; !late.good && (!errors.As(err, &problem) || problem.Status != 422) {
				t.Errorf("it fails for another reason: %v", err)
			}
		})
	}
}

// TestADeletionWaitsAtControl: Terraform gets on, and the change that lets it go makes it, however late it comes.
func TestADeletionWaitsAtControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.put("regions/r", map[string]any{"name": "r"})
		fake.put("services/s", map[string]any{"name": "s", "needs": []any{"regions/r"}})
		fake.put("residency_rules/old", map[string]any{"name": "old"})
		smaller := create("services/s")
		smaller.Tag = fake.tag("services/s")
		writes := []Write{remove(fake, "regions/r"), remove(fake, "residency_rules/old"), smaller, create("residency_rules/new")}
		found := run(fake, Force{}, writes, func(i int) time.Duration { return time.Duration(i) * 5 * patience })
		found.check(t, map[string]bool{"regions/r": true, "residency_rules/old": true, "services/s": true, "residency_rules/new": true})
		if fake.has("regions/r") || fake.has("residency_rules/old") || len(fake.deferred) > 0 {
			t.Error("something is still there")
		}
		if found.notes["regions/r"] != "" || found.notes["residency_rules/old"] == "" {
			t.Errorf("%v: it is told of rules alone that they stay in force", found.notes)
		}
	})
}

// TestADeletionIsForcedForItsReason: a rule whose end opens a fence goes at once, if the provider block says why.
func TestADeletionIsForcedForItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.put("residency_rules/old", map[string]any{"name": "old"})
		run(fake, Force{FenceChange: "counsel agreed"}, []Write{remove(fake, "residency_rules/old")}, atOnce).check(t, map[string]bool{"residency_rules/old": true})
		if fake.has("residency_rules/old") || len(fake.forced) != 1 || fake.forced[0] != "counsel agreed" {
			t.Error(fake.forced)
		}
	})
}

func TestConflictsFailAtOnceAndAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.put("tenants/there", map[string]any{"name": "there"})
		fake.put("tenants/changed", map[string]any{"name": "changed"})
		changed := create("tenants/changed")
		changed.Tag = `"0"`
		begun := time.Now()
		found := run(fake, Force{}, []Write{create("tenants/there"), changed, create("tenants/new")}, atOnce)
		found.check(t, map[string]bool{"tenants/there": false, "tenants/changed": false, "tenants/new": true})
		if !Exists(found.errs["tenants/there"]) || Exists(found.errs["tenants/changed"]) {
			t.Error(found.errs)
		}
		if took := time.Since(begun); took >= patience {
			t.Errorf("it took %s", took)
		}
	})
}

// TestRandomInterleavings: what is good by itself, and by what it needs, is written whatever order it comes in and
// whatever stands beside it; what is not fails; nothing is said to be written that is not.
func TestRandomInterleavings(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			fake := newFake()
			fake.latency = func() time.Duration { return time.Duration(random.IntN(40)) * time.Millisecond }
			writes, expected := randomWrites(random, fake)
			random.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
			pauses := make([]time.Duration, len(writes))
			for i := range pauses {
				pauses[i] = time.Duration(random.IntN(1+random.IntN(300))) * time.Millisecond
			}
			run(fake, Force{}, writes, func(i int) time.Duration { return pauses[i] }).check(t, expected)
			for key, good := range expected {
				if key != "residency_rules/old" && fake.has(key) != good {
					t.Errorf("%s is there: %t", key, !good)
				}
			}
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

// randomWrites are creations that need one another without circles, some bad, and a rule that another replaces.
func randomWrites(random *rand.Rand, fake *fakeControl) (writes []Write, expected map[string]bool) {
	expected = map[string]bool{}
	var keys []string
	for i := range 1 + random.IntN(25) {
		key := fmt.Sprintf("%s/n%d", []string{"regions", "services", "zones"}[random.IntN(3)], i)
		good := true
		var needs []string
		for _, other := range keys {
			if random.IntN(6) == 0 {
				needs, good = append(needs, other), good && expected[other]
			}
		}
		write := create(key, needs...)
		switch random.IntN(12) {
		case 0:
			write.Document["poison"], good = true, false
		case 1:
			fake.put(key, map[string]any{"name": write.Name}) // it exists: refused, and there for those that need it
			keys, expected[key] = append(keys, key), true
			continue
		}
		keys, expected[key], writes = append(keys, key), good, append(writes, write)
	}
	for _, key := range keys {
		if fake.has(key) {
			delete(expected, key)
		}
	}
	if random.IntN(2) == 0 {
		fake.put("residency_rules/old", map[string]any{"name": "old"})
		writes = append(writes, remove(fake, "residency_rules/old"), create("residency_rules/new"))
		expected["residency_rules/new"], expected["residency_rules/old"] = true, true
	}
	return writes, expected
}

func TestALostAnswerIsSaidToBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.breaks = func() bool { return true }
		found := run(fake, Force{}, []Write{create("tenants/a"), create("tenants/b")}, atOnce)
		found.check(t, map[string]bool{"tenants/a": false, "tenants/b": false})
		if fake.applied > 2 {
			t.Errorf("made again %d times, though it may have been done", fake.applied)
		}
	})
}

func TestForceIsForTheRulesThatHaveAReason(t *testing.T) {
	breaches := func(rules ...string) (found []Breach) {
		for _, rule := range rules {
			found = append(found, Breach{Rule: rule})
		}
		return found
	}
	both := Force{FenceChange: "a", Disruption: "b"}
	for _, one := range []struct {
		force    Force
		rules    []string
		expected string
	}{
		{Force{}, []string{"fence"}, ""}, {Force{FenceChange: "a"}, []string{"fence"}, "a"}, {Force{FenceChange: "a"}, []string{"deletion", "fence"}, "a"},
		{Force{FenceChange: "a"}, []string{"fence", "moved"}, ""}, {Force{Disruption: "b"}, []string{"fence"}, ""}, {Force{Disruption: "b"}, []string{"moved"}, "b"},
		{both, []string{"moved", "fence"}, "b; a"}, {both, nil, ""}, {Force{TakeOver: "c"}, []string{"fence"}, ""},
	} {
		if got := one.force.Covers(breaches(one.rules...)); got != one.expected {
			t.Errorf("%+v %v: %q", one.force, one.rules, got)
		}
	}
}

func TestMoreAtOnceThanControlTakesAreAFewChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		var writes []Write
		for i := range 2500 {
			writes = append(writes, create(fmt.Sprintf("tenants/t%d", i)))
		}
		found := run(fake, Force{}, writes, atOnce)
		if len(fake.resources) != 2500 || fake.applied != 3 {
			t.Errorf("%d resources by %d changes", len(fake.resources), fake.applied)
		}
		for key, err := range found.errs {
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
	})
}
