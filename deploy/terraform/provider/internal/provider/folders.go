package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// calledExpect is what files of expected decisions are called, which are `gtm check`'s.
	calledExpect = "expect"
	// mostEntries bounds what is below a folder, as gtm does (gtm/documents/policy_files.py).
	mostEntries = 10_000
)

var (
	// policySuffix is what ends the name of a policy's file.
	policySuffix = regexp.MustCompile(`(?is)^.*\.(?:yaml|yml|json)$`)
	// passedOver are the names of hidden files, and of those that editors leave.
	passedOver = regexp.MustCompile(`(?is)^(?:\..*|#.*#|.*(?:~|\.(?:bak|old|orig|rej|tmp|sw[a-p]|swpx)))$`)
)

// policyFiles are the files of a folder that are read, and the names of those that are not, as gtm has it
// (gtm/documents/policy_files.py): with all that is below it, in the order of names, each file once.
type policyFiles struct {
	top          string
	policy       []string // paths within the folder, with slashes, as are all of these
	expectations []string
	passed       []string
	others       []string
	known        map[string]string
	entries      int
}

func filesOf(folder string) (*policyFiles, error) {
	found := &policyFiles{top: folder, known: map[string]string{}}
	if err := found.look("."); err != nil {
		return nil, err
	}
	if len(found.policy) == 0 {
		return nil, fmt.Errorf("there are no *.yaml, *.yml or *.json files in `%s`, nor below it", folder)
	}
	return found, nil
}

// look says of a file or a folder what it is, and of all that is below it.
func (f *policyFiles) look(inner string) error {
	path, name := filepath.Join(f.top, inner), filepath.Base(inner)
	if inner != "." && passedOver.MatchString(name) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			inner += "/"
		}
		f.passed = append(f.passed, inner)
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	said, wanted := inner, policySuffix.MatchString(name)
	if info.IsDir() {
		said, wanted = inner+"/", true
	}
	if !wanted {
		f.others = append(f.others, said)
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return err
	}
	if first, twice := f.known[real]; twice {
		f.others = append(f.others, fmt.Sprintf("%s (read as %s)", said, first))
		return nil
	}
	f.known[real] = inner
	switch {
	case info.IsDir():
		return f.within(inner, said, path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: it is no regular file", inner)
	case info.Size() == 0 && !strings.EqualFold(filepath.Ext(name), ".json") && empty(path):
		f.others = append(f.others, said+" (empty)")
	case strings.EqualFold(strings.TrimSuffix(name, filepath.Ext(name)), calledExpect):
		f.expectations = append(f.expectations, inner)
	default:
		f.policy = append(f.policy, inner)
	}
	return nil
}

// empty says whether a file holds nothing; what has no size need not.
func empty(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && len(text) == 0
}

func (f *policyFiles) within(inner, said, path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	names, err := folder.Readdirnames(mostEntries + 1)
	folder.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if f.entries += len(names); f.entries > mostEntries {
		return fmt.Errorf("more than %d files and folders are below it: name the folder that holds the policy alone", mostEntries)
	}
	if len(names) == 0 && inner != "." {
		f.others = append(f.others, said+" (empty)")
	}
	slices.Sort(names)
	for _, name := range names {
		if err := f.look(filepath.ToSlash(filepath.Join(inner, name))); err != nil {
			return err
		}
	}
	return nil
}

// readFolder reads the policy files of a folder, which merge by concatenation; unread are others, which no name marks as hidden.
func readFolder(folder string) (whole document, unread []string, err error) {
	files, err := filesOf(folder)
	if err != nil {
		return nil, nil, err
	}
	whole = document{}
	said := false
	for _, name := range files.policy {
		part, err := readFile(filepath.Join(folder, name))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		said = said || len(part) > 0
		for kind, resources := range part {
			whole[kind] = append(whole[kind], resources...)
		}
	}
	if !said {
		return nil, nil, fmt.Errorf("no policy is in `%s`: give a kind at the least, `services: []` if nothing is meant", folder)
	}
	return whole, files.others, nil
}

// readJSON reads a policy written as JSON and no more (RFC 8259), in which no object has a member twice.
func readJSON(text []byte) (document, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) {
		return nil, errors.New("it is no JSON in UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	top, err := jsonValue(decoder, 0)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("byte %d: %w", decoder.InputOffset(), err)
	}
	found := document{}
	return found, found.add(top)
}

// nextToken is the next one of a text that is not over yet.
func nextToken(decoder *json.Decoder) (json.Token, error) {
	token, err := decoder.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}

func jsonValue(decoder *json.Decoder, depth int) (any, error) {
	token, err := nextToken(decoder)
	opened, nested := token.(json.Delim)
	if err != nil || !nested {
		return token, err
	}
	if depth == deepest {
		return nil, fmt.Errorf("nested deeper than %d", deepest)
	}
	fields, items := map[string]any{}, []any{}
	for decoder.More() {
		var name string
		if opened == '{' {
			key, err := nextToken(decoder)
			if err != nil {
				return nil, err
			}
			name = key.(string) // the decoder takes no other
			if _, twice := fields[name]; twice {
				return nil, fmt.Errorf("`%s` is there twice", shortened(name))
			}
		}
		value, err := jsonValue(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		fields[name], items = value, append(items, value)
	}
	if _, err := nextToken(decoder); err != nil {
		return nil, err
	}
	if opened == '{' {
		return fields, nil
	}
	return items, nil
}
