package provider

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// How Terraform is told to do one thing at a time, and to destroy everything, on its command line or in TF_CLI_ARGS.
var (
	one        = regexp.MustCompile(`(^|\s)--?parallelism[=\s]"?1"?(\s|$)`)
	destroying = regexp.MustCompile(`(^|\s)(destroy|--?destroy(=true)?)(\s|$)`)
)

// oneAtATime says whether Terraform plans one resource after the other, and something may take the place of what goes: it destroys not
// everything. Its command line and its environment have that: nothing else tells a provider. Where the command line cannot be read (it is
// Linux that shows a parent's), Terraform is taken to plan ten at once.
func oneAtATime() bool {
	told := []string{""}
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "TF_CLI_ARGS") {
			told = append(told, value)
		}
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", os.Getppid())); err == nil {
		told[0] = strings.ReplaceAll(string(line), "\x00", " ")
	}
	text := strings.Join(told, " ")
	return one.MatchString(text) && !destroying.MatchString(text)
}
