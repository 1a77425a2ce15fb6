package provider

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

// Gather has control look at all that a plan changes, as one policy.
//
// Theory. Terraform plans resource by resource, ten at once, a resource after those that it refers to, and says neither how
// many there are nor when it is done. So each changed resource tells what it will be, and one of them, the watcher, waits
// until no more come for a moment, and asks control what all of it together would change (`policy:plan`). Who comes after
// the watcher has asked watches anew. So:
//
//  1. Whatever is told is part of what some watcher asks, for who tells it is watched or watches.
//  2. The last watcher has seen everything. What it finds wrong is wrong.
//  3. A watcher that finds something wrong waits a little for others that might put it right (a rule in place of one that
//     goes), and leaves the judgement to them if they come.
//  4. What is wrong with a resource of this workspace that Terraform has not planned yet is left to whoever tells of that one: a region that
//     goes is planned before the service that named it. If it is planned as it is, it tells so.
//  5. Where Terraform plans one resource after the other, nobody else comes while a watcher waits. That a rule which goes opens a fence is a
//     warning then, for one that is planned later may take its place; if none does, control leaves it in force.
//
// The number of requests goes by how deep resources refer to one another, not by how many there are.
//
// Example: a region, a service that names it, and a rule on that service: the region's watcher asks alone, then the
// service's with both, then the rule's with all three.
//
// What is wrong is said at the resource that it is about if that one is still being planned: a few of those that told
// something before the watcher asked wait for its answer. Else the watcher says it.
//
// Terraform plans each resource once more when it applies, in part of the whole only; from the first write on nothing is
// asked any more.
type Gather struct {
	client *client.Client
	shelf  *client.Shelf
	writer *client.Writer
	force  client.Force
	single bool // Terraform plans one resource after the other

	lock    sync.Mutex
	changes map[resourceKey]change
	states  map[string]string    // region → admin state
	same    map[resourceKey]bool // planned, and as they are
	owed    map[resourceKey]bool // of which something wrong is left to them
	version int
	round   *round // nil: nobody watches
	asking  bool
	waiters int
	said    map[string]bool
}

// round is one question to control: who waits for the answer, and what each is to say.
type round struct {
	waiting []resourceKey
	done    chan struct{}
	notices map[resourceKey]diag.Diagnostics
}

// notice is something to say, of a resource if that is known.
type notice struct {
	of      resourceKey
	at      path.Path
	title   string
	text    string
	warning bool
}

type resourceKey struct{ field, name string }

// change is what becomes of a resource; a nil document: it is deleted; unknown: why control cannot look at it yet.
type change struct {
	document map[string]any
	unknown  string
}

const (
	quiet    = 200 * time.Millisecond
	longest  = 20 * time.Second
	puttings = 2 * time.Second // for others to put right what is wrong
	tick     = 25 * time.Millisecond
	mostTold = 20
	mostWait = 5 // at once, of the ten that Terraform plans at once: the others must get on
)

func newGather(made *client.Client, shelf *client.Shelf, writer *client.Writer, force client.Force) *Gather {
	return &Gather{client: made, shelf: shelf, writer: writer, force: force, single: oneAtATime(), changes: map[resourceKey]change{}, states: map[string]string{}, same: map[resourceKey]bool{}, owed: map[resourceKey]bool{}, said: map[string]bool{}}
}

// Tell says what becomes of a resource; what is wrong with it, as far as control can say, or with all that is known if
// nobody else will say it.
func (g *Gather) Tell(ctx context.Context, kind spec.Kind, name string, what change) diag.Diagnostics {
	key := resourceKey{kind.Field, name}
	g.lock.Lock()
	g.changes[key] = what
	return g.watch(ctx, key)
}

// Unchanged says that a resource is planned as it is; what is wrong with it all the same, if something was left to it.
func (g *Gather) Unchanged(ctx context.Context, kind spec.Kind, name string) diag.Diagnostics {
	key := resourceKey{kind.Field, name}
	g.lock.Lock()
	g.same[key] = true
	if !g.owed[key] {
		g.lock.Unlock()
		return nil
	}
	return g.watch(ctx, key)
}

// left is what of a refusal is not left to resources that are still to be planned.
func (g *Gather) left(ctx context.Context, err error) error {
	var problem *client.Problem
	if !errors.As(err, &problem) || problem.Status != 422 || len(problem.Errors) == 0 {
		return err
	}
	now := *problem
	now.Errors = nil
	for _, fault := range problem.Errors {
		if of, _ := whose(fault.Path); !g.toCome(ctx, of) {
			now.Errors = append(now.Errors, fault)
		}
	}
	if len(now.Errors) == 0 {
		return nil
	}
	return &now
}

// toCome says whether a resource is this workspace's, and is still to be planned; something is left to it then.
func (g *Gather) toCome(ctx context.Context, of resourceKey) bool {
	kind, known := spec.Find(of.field)
	if !known {
		return false
	}
	found, there, err := g.shelf.Get(ctx, kind.Path, of.name)
	if err != nil || !there || found.Manager == "" || found.Manager != g.client.Manager() {
		return false
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	if _, told := g.changes[of]; told || g.same[of] {
		return false
	}
	g.owed[of] = true
	return true
}

// TellState says which admin state a region will have.
func (g *Gather) TellState(ctx context.Context, region, state string) diag.Diagnostics {
	g.lock.Lock()
	g.states[region] = state
	return g.watch(ctx, resourceKey{"regions", region})
}

// Changing are the resources that this plan changes, as far as it has told, as `gtm_service chat`.
func (g *Gather) Changing() (found []string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for key := range g.changes {
		if kind, known := spec.Find(key.field); known {
			found = append(found, fmt.Sprintf("gtm_%s `%s`", kind.Name, key.name))
		}
	}
	slices.Sort(found)
	return found
}

// watch is called with the lock, and gives it back.
func (g *Gather) watch(ctx context.Context, key resourceKey) diag.Diagnostics {
	g.version++
	if g.writer.Begun() {
		g.lock.Unlock()
		return nil
	}
	if now := g.round; now != nil {
		waits := g.waiters < mostWait
		if waits {
			now.waiting = append(now.waiting, key)
			g.waiters++
		}
		g.lock.Unlock()
		if !waits {
			return nil
		}
		<-now.done
		return now.notices[key]
	}
	mine := &round{waiting: []resourceKey{key}, done: make(chan struct{})}
	g.round = mine
	g.waiters++
	g.lock.Unlock()
	notices := g.ask(ctx, mine)
	mine.notices = g.shared(notices, mine.waiting)
	g.lock.Lock()
	g.asking = false
	g.waiters -= len(mine.waiting)
	g.lock.Unlock()
	close(mine.done)
	return mine.notices[key]
}

// ask waits until nothing more is told, and has control look at it all; nothing if somebody else will.
func (g *Gather) ask(ctx context.Context, mine *round) []notice {
	g.settle(ctx, quiet, longest)
	g.lock.Lock()
	g.round, g.asking = nil, true
	seen := g.version
	body, unknown, err := g.body(ctx)
	g.lock.Unlock()
	if err != nil {
		return failing(err)
	}
	var found planned
	_, err = g.client.Do(ctx, client.Call{Method: "POST", Path: "/v1/policy:plan", Body: body, Into: &found, Reads: true})
	unforced := func(breach client.Breach) bool {
		return breach.Protects() && g.force.Covers([]client.Breach{breach}) == ""
	}
	err = g.left(ctx, err)
	if !g.single && (err != nil || slices.ContainsFunc(found.breaches(), unforced)) {
		g.wait(ctx, puttings, seen)
	}
	if g.later(seen) || g.writer.Begun() {
		return nil
	}
	if err != nil {
		return refusal(err, unknown)
	}
	return g.verdict(found, unknown)
}

// shared gives each notice to the resource that it is about if that waits for it, else to the first that waits. What
// has been said once is not said again.
func (g *Gather) shared(notices []notice, waiting []resourceKey) map[resourceKey]diag.Diagnostics {
	g.lock.Lock()
	defer g.lock.Unlock()
	found := map[resourceKey]diag.Diagnostics{}
	for _, one := range notices {
		if g.said[one.title+one.text] {
			continue
		}
		g.said[one.title+one.text] = true
		to := waiting[0]
		if slices.Contains(waiting, one.of) {
			to = one.of
		} else {
			one.at = path.Empty()
		}
		told := found[to]
		switch {
		case one.warning:
			told.AddWarning(one.title, one.text)
		case len(one.at.Steps()) > 0:
			told.AddAttributeError(one.at, one.title, one.text)
		default:
			told.AddError(one.title, one.text)
		}
		found[to] = told
	}
	return found
}

// settle waits until nothing has been told for a while, and nobody else asks: one question at a time, so that most of
// what Terraform plans at once gets on meanwhile, and is part of the next.
func (g *Gather) settle(ctx context.Context, while, most time.Duration) {
	end, since, last := time.Now().Add(most), time.Now(), -1
	for time.Now().Before(end) && ctx.Err() == nil && !g.writer.Begun() {
		g.lock.Lock()
		now, asking := g.version, g.asking
		g.lock.Unlock()
		if asking {
			end = time.Now().Add(most)
		}
		if now != last || asking {
			last, since = now, time.Now()
		}
		if time.Since(since) >= while {
			return
		}
		time.Sleep(tick)
	}
}

// wait waits until somebody else watches.
func (g *Gather) wait(ctx context.Context, most time.Duration, seen int) {
	for end := time.Now().Add(most); time.Now().Before(end) && ctx.Err() == nil && !g.later(seen) && !g.writer.Begun(); {
		time.Sleep(tick)
	}
}

func (g *Gather) later(seen int) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.version != seen
}

// body is all that was told, as control takes it, and the names of what it cannot look at yet.
func (g *Gather) body(ctx context.Context) (body map[string]any, unknown []string, err error) {
	policy, deletes := map[string][]any{}, []any{}
	documents := map[string]map[string]any{}
	for key, what := range g.changes {
		switch {
		case what.unknown != "":
			unknown = append(unknown, fmt.Sprintf("%s `%s`: %s", key.field, key.name, what.unknown))
		case what.document == nil:
			deletes = append(deletes, map[string]any{"kind": key.field, "name": key.name})
		case key.field == "regions":
			documents[key.name] = what.document
		default:
			policy[key.field] = append(policy[key.field], what.document)
		}
	}
	for region, state := range g.states {
		if what, planned := g.changes[resourceKey{"regions", region}]; planned && what.document == nil && what.unknown == "" {
			continue // it goes, and its state with it
		}
		document, told := documents[region]
		if !told {
			found, ok, err := g.shelf.Get(ctx, "/v1/regions", region)
			if err != nil {
				return nil, nil, err
			}
			if !ok {
				continue
			}
			document = found.Document
		}
		with := map[string]any{"admin_state": state}
		for field, value := range document {
			if field != "admin_state" && field != "draining_since" {
				with[field] = value
			}
		}
		documents[region] = with
	}
	for _, document := range documents {
		policy["regions"] = append(policy["regions"], document)
	}
	slices.Sort(unknown)
	return map[string]any{"policy": policy, "partial": true, "delete": deletes}, unknown, nil
}

// planned is what control says of a dry run, as far as it is told here.
type planned struct {
	Findings []client.Fault `json:"findings"`
	Managed  []struct {
		Kind    string `json:"kind"`
		Name    string `json:"name"`
		Manager string `json:"manager"`
	} `json:"managed"`
	Safety *struct {
		Breaches    []client.Breach `json:"breaches"`
		Unchecked   []string        `json:"unchecked"`
		Moved       *float64        `json:"moved"`
		MovedByLaw  *float64        `json:"moved_by_law"`
		Short       []float64       `json:"short"`
		Fingerprint *string         `json:"fingerprint"`
		MayForce    bool            `json:"may_force"`
	} `json:"safety"`
}

func (p planned) breaches() []client.Breach {
	if p.Safety == nil {
		return nil
	}
	return p.Safety.Breaches
}

// refusal is why control will not have the policy.
func refusal(err error, unknown []string) []notice {
	var problem *client.Problem
	if !errors.As(err, &problem) || problem.Status != 422 {
		return failing(err)
	}
	if len(unknown) > 0 {
		return unchecked("these are only known after apply, and without them the policy is not whole:\n  " + strings.Join(unknown, "\n  ") + "\n\n" + problem.Error())
	}
	var found []notice
	for _, fault := range problem.Errors {
		of, at := whose(fault.Path)
		found = append(found, notice{of, at, "The policy would not be valid", fault.Path + ": " + fault.Message, false})
	}
	if len(found) == 0 {
		found = append(found, notice{title: "The policy would not be valid", text: problem.Error()})
	}
	return found
}

// whose is the resource that a path begins with, and the attribute of it: `services.chat.members[0].region`.
func whose(where string) (resourceKey, path.Path) {
	field, rest, _ := strings.Cut(where, ".")
	kind, ok := spec.Find(field)
	if !ok {
		return resourceKey{}, path.Empty()
	}
	end := len(rest)
	for _, a := range kind.Attributes { // names of zones have dots, so that a name ends where an attribute begins
		if at := strings.Index(rest, "."+a.Name); at > 0 && at < end && pathOf(kind.Attributes, rest[at:]).Equal(path.Root(a.Name)) {
			end = at
		}
	}
	name := rest[:end]
	return resourceKey{field, name}, pathOf(kind.Attributes, strings.TrimPrefix(rest, name))
}

var ruleNamed = regexp.MustCompile("^rule `([^`]+)`")

func (g *Gather) verdict(plan planned, unknown []string) (found []notice) {
	for _, breach := range plan.breaches() {
		found = append(found, g.breach(breach))
	}
	for _, one := range plan.Managed {
		of := resourceKey{one.Kind, one.Name}
		text := fmt.Sprintf("%s `%s` is managed by `%s`", one.Kind, one.Name, one.Manager)
		if g.force.TakeOver == "" {
			found = append(found, notice{of: of, title: "Somebody else manages this", text: text + ". Change it there, have its manager let go of it (`gtm managed`), or set `take_over = \"REASON\"` in the provider block."})
		} else {
			found = append(found, notice{of: of, title: "This takes over what somebody else manages", text: text + ": " + g.force.TakeOver, warning: true})
		}
	}
	if safety := plan.Safety; safety != nil && safety.Moved != nil && *safety.Moved > 0 {
		found = append(found, notice{title: "This plan moves traffic", text: moved(*safety.Moved, safety.MovedByLaw, safety.Short), warning: true})
	}
	told := 0
	for _, finding := range plan.Findings {
		of, _ := whose(finding.Path)
		g.lock.Lock()
		_, changed := g.changes[of]
		g.lock.Unlock()
		if changed && told < mostTold {
			told++
			found = append(found, notice{of: of, title: "This is probably not meant", text: finding.Path + ": " + finding.Message, warning: true})
		}
	}
	if len(unknown) > 0 {
		found = append(found, unchecked("these are only known after apply:\n  "+strings.Join(unknown, "\n  "))...)
	}
	return found
}

func (g *Gather) breach(breach client.Breach) notice {
	const meant = "\n\nIf that is meant, set `allow_fence_change = \"REASON\"` in the provider block, with a token of role `fence-admin`, and remove it again afterwards."
	found := notice{text: breach.Message}
	if named := ruleNamed.FindStringSubmatch(breach.Message); named != nil {
		found.of = resourceKey{"residency_rules", named[1]}
	}
	forced := g.force.Covers([]client.Breach{breach})
	switch {
	case forced == "" && g.single && g.deletes(found.of):
		found.title, found.warning = fmt.Sprintf("Control refuses this by its safety rule `%s`, unless a change that is planned later makes up for it", breach.Rule), true
		found.text += meant
	case forced != "":
		found.title, found.warning = fmt.Sprintf("This plan breaks the safety rule `%s`, for a reason", breach.Rule), true
		found.text += "\n\nThe reason given: " + forced
	case breach.Rule == "fence":
		found.title = "This plan opens a residency fence"
		found.text += meant + " If another change of the same plan makes up for it, apply both as one: `gtm_policy`."
	case breach.Protects():
		found.title = "This plan deletes more than a plan may"
		found.text += meant
	default:
		found.title, found.warning = fmt.Sprintf("Control would refuse this now: safety rule `%s`", breach.Rule), true
		found.text += "\n\nApply asks again. If it is meant, set `allow_disruption = \"REASON\"` in the provider block."
	}
	return found
}

// deletes says whether a resource goes in this plan, as far as it has told.
func (g *Gather) deletes(of resourceKey) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	what, told := g.changes[of]
	return told && what.document == nil && what.unknown == ""
}

func moved(share float64, byLaw *float64, short []float64) string {
	said := fmt.Sprintf("%.1f %% of the present requests would leave the region that serves them", 100*share)
	if byLaw != nil && *byLaw > 0 {
		said += fmt.Sprintf(", %.1f %% because the law will have it", 100**byLaw)
	}
	if len(short) == 2 && short[1] > short[0] {
		said += fmt.Sprintf("; requests per second without capacity: %.1f now, %.1f then", short[0], short[1])
	}
	return said + "."
}

// failing is why control said nothing. That it cannot be reached is an error, for reads of the same run that it fails say nothing more.
func failing(err error) []notice {
	switch {
	case client.IsRepeated(err):
		return nil
	case client.IsUnreached(err):
		return []notice{{title: "Control cannot be reached", text: err.Error()}}
	}
	return unchecked(err.Error())
}

func unchecked(why string) []notice {
	return []notice{{title: "This plan is not checked as a whole", text: "Control says what it would change, and whether that is safe, only when it is applied: " + why, warning: true}}
}
