package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"terraform-provider-gtm/internal/values"
)

// folderCase is a folder and what gtm itself reads of it; Wrong: what it says of it instead. `tests/documents/test_folders.py`
// holds the file against gtm.
type folderCase struct {
	Said         string            `json:"said"`
	Files        map[string]string `json:"files"`
	Links        map[string]string `json:"links"`
	Folders      []string          `json:"folders"`
	Policy       []string          `json:"policy"`
	Expectations []string          `json:"expectations"`
	Passed       []string          `json:"passed"`
	Others       []string          `json:"others"`
	Wrong        string            `json:"wrong"`
}

func (c folderCase) written(t *testing.T) string {
	top := t.TempDir()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range c.Folders {
		must(os.MkdirAll(filepath.Join(top, name), 0o700))
	}
	for name, text := range c.Files {
		must(os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o700))
		must(os.WriteFile(filepath.Join(top, name), []byte(text), 0o600))
	}
	for name, target := range c.Links {
		must(os.Symlink(target, filepath.Join(top, name)))
	}
	return top
}

func TestFoldersAreReadAsGtmReadsThem(t *testing.T) {
	var cases []folderCase
	text, err := os.ReadFile("testdata/folders.json")
	if err == nil {
		err = values.Unmarshal(text, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range cases {
		t.Run(one.Said, func(t *testing.T) {
			top := one.written(t)
			_, unread, err := readFolder(top)
			if one.Wrong != "" {
				if err == nil || !strings.Contains(err.Error(), one.Wrong) {
					t.Errorf("it says %v, not `%s`", err, one.Wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			found, err := filesOf(top)
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2][]string{
				{found.policy, one.Policy}, {found.expectations, one.Expectations}, {found.passed, one.Passed}, {found.others, one.Others}, {unread, one.Others},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("%q, not %q", pair[0], pair[1])
				}
			}
		})
	}
}

func TestADiskIsNoPolicy(t *testing.T) {
	top := t.TempDir()
	for i := range mostEntries {
		if err := os.Symlink("x", filepath.Join(top, fmt.Sprintf("%d~", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := filesOf(top); err == nil || !strings.Contains(err.Error(), "there are no") {
		t.Errorf("as many as may be: %v", err)
	}
	if err := os.WriteFile(filepath.Join(top, "x.yaml"), []byte("tenants: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := filesOf(top); err == nil || !strings.Contains(err.Error(), "more than 10000") {
		t.Errorf("one more: %v", err)
	}
	for _, name := range []string{"x.yaml", "0~"} {
		if err := os.Remove(filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(top, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "d", "x.yaml"), []byte("tenants: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := filesOf(top); err == nil || !strings.Contains(err.Error(), "more than 10000") {
		t.Errorf("one more, in a folder below: %v", err)
	}
}

func TestAPipeIsNoFile(t *testing.T) {
	top := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(top, "x.yaml"), 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := filesOf(top); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("it says %v", err)
	}
}

func TestAFileIsReadOnceByPathsOfBothKinds(t *testing.T) {
	top := t.TempDir()
	t.Chdir(top)
	if err := os.WriteFile("a.yaml", []byte("tenants: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(top, "a.yaml"), "b.yaml"); err != nil {
		t.Fatal(err)
	}
	found, err := filesOf(".")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found.policy, []string{"a.yaml"}) || !slices.Equal(found.others, []string{"b.yaml (read as a.yaml)"}) {
		t.Errorf("%q, and %q beside", found.policy, found.others)
	}
}

func TestNumbersOfJSONStayAsTheyAreWritten(t *testing.T) {
	found, err := readJSON([]byte(`{"tenants": [{"name": "x", "weight": 9007199254740993}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(found["tenants"]); !strings.Contains(got, "9007199254740993") {
		t.Errorf("%s", got)
	}
}

func TestJSONMayBeAsDeepAsItMay(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
	}
	if _, err := readJSON(nested(deepest)); err == nil || strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("as deep as may be: %v", err)
	}
	if _, err := readJSON(nested(deepest + 1)); err == nil || !strings.Contains(err.Error(), "nested deeper") {
		t.Errorf("deeper: %v", err)
	}
}

func TestWhereJSONBreaksOffIsSaid(t *testing.T) {
	if _, err := readJSON([]byte(`{"tenants": [`)); err == nil || err.Error() != "byte 13: unexpected EOF" {
		t.Errorf("%v", err)
	}
}
