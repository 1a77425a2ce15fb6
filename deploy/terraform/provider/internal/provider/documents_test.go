package provider

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"terraform-provider-gtm/internal/values"
)

// yamlCase is a text and what gtm itself reads in it, null: it refuses it. `tests/terraform/test_yaml.py` holds the file
// against gtm's own reader.
type yamlCase struct {
	YAML string         `json:"yaml"`
	Read map[string]any `json:"read"`
}

func yamlCases(t testing.TB) (found []yamlCase) {
	text, err := os.ReadFile("testdata/yaml.json")
	if err == nil {
		err = values.Unmarshal(text, &found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// same compares numbers by value: 1.0 is 1.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for name, value := range a {
			if its, there := other[name]; !there || !same(value, its) {
				return false
			}
		}
		return true
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for i := range a {
			if !same(a[i], other[i]) {
				return false
			}
		}
		return true
	case json.Number:
		other, ok := b.(json.Number)
		x, _ := new(big.Float).SetString(a.String())
		y, _ := new(big.Float).SetString(other.String())
		return ok && x.Cmp(y) == 0
	}
	return a == b
}

func TestYAMLIsReadAsGtmReadsIt(t *testing.T) {
	for _, one := range yamlCases(t) {
		read, err := readText([]byte(one.YAML))
		if (err != nil) != (one.Read == nil) {
			t.Errorf("%q: %v, %v instead of %v", one.YAML, read, err, one.Read)
			continue
		}
		got := map[string]any{}
		for kind, resources := range read {
			if got[kind] = resources; resources == nil {
				got[kind] = []any{}
			}
		}
		if err == nil && !same(got, any(one.Read).(map[string]any)) {
			t.Errorf("%q: %v instead of %v", one.YAML, got, one.Read)
		}
	}
}

// bomb is a text of a few lines that stands for width^levels values.
func bomb(width, levels int) string {
	text := "x0: &x0 [0]\n"
	for level := 1; level <= levels; level++ {
		inner := fmt.Sprintf("*x%d", level-1)
		text += fmt.Sprintf("x%d: &x%d [%s]\n", level, level, strings.TrimSuffix(strings.Repeat(inner+", ", width), ", "))
	}
	return text
}

func TestWhatHasNoEndIsRefusedSoon(t *testing.T) {
	deep := "tenants: " + strings.Repeat("[", deepest+1) + strings.Repeat("]", deepest+1)
	const row = 1000
	huge := "tenants: [&a [" + strings.Repeat("0,", row) + "]" + strings.Repeat(", *a", mostValues/row) + "]"
	for name, text := range map[string]string{
		"bomb": bomb(10, 12), "deep": deep, "very deep": strings.Repeat("[", 1_000_000), "itself": "tenants: &a [*a]",
		"itself in a mapping": "tenants: &a\n- b: *a", "itself merged": "tenants:\n- &a\n  <<: *a", "many": huge,
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			if _, err := readText([]byte(text)); err == nil {
				t.Error("it was read")
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("refused after %s", took)
			}
		})
	}
}

func TestAFolderIsItsFilesTogether(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "tenants: [{name: b}]\n---\ntenants: [{name: c}]\n", "a.yml": "tenants: [{name: a}]", "expect.yaml": "expectations: []", "notes.txt": "no",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, _, err := readFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got := read.text(); got != `{"tenants":[{"name":"a"},{"name":"b"},{"name":"c"}]}` {
		t.Error(got)
	}
	if err := os.WriteFile(filepath.Join(folder, "c.yaml"), []byte("tenants: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = readFolder(folder); err == nil || !strings.Contains(err.Error(), "c.yaml") {
		t.Errorf("the file with the fault is not named: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "c.yaml"), make([]byte, largestFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = readFolder(folder); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("too large a file: %v", err)
	}
	if _, _, err = readFolder(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
}

// FuzzReadText: whatever it is given, the reader comes back, and what it reads can be told as text and read again.
func FuzzReadText(f *testing.F) {
	for _, one := range yamlCases(f) {
		f.Add(one.YAML)
	}
	f.Add(bomb(3, 3))
	f.Fuzz(func(t *testing.T, text string) {
		read, err := readText([]byte(text))
		if err != nil {
			return
		}
		told := read.text()
		again, err := fromText(told)
		if err != nil || again.text() != told {
			t.Errorf("%q became %s, then %s (%v)", text, told, again.text(), err)
		}
		_, _ = read.names()
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"", "90s", "1h30m", "2d", "1.5h", "500ms", "1", "-1s", "1e9s", "99999w", "5 m", "0s", "1.2.3s", strings.Repeat("9", 400) + "s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		seconds, err := parseDuration(text)
		if err != nil {
			if len([]rune(err.Error())) > 300 {
				t.Errorf("the error repeats all of it: %s", err)
			}
			return
		}
		if !(seconds >= 0 && seconds <= longestDuration) {
			t.Errorf("%q has %g seconds", text, seconds)
		}
		if twice, err := parseDuration(text + text); err == nil && twice < seconds {
			t.Errorf("twice %q has %g seconds, once %g", text, twice, seconds)
		}
	})
}

func TestDurations(t *testing.T) {
	for text, expected := range map[string]float64{"90s": 90, "1h30m": 5400, "2d": 172800, "1w": 604800, "500ms": 0.5, "1.5h": 5400, "0s": 0} {
		if got, err := parseDuration(text); err != nil || got != expected {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "s", "-5s", "5 s", " 5s", "1y", "5m!", "1e3s", "NaNs", "Infs", "9999999999w"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q has %g seconds", text, got)
		}
	}
}
