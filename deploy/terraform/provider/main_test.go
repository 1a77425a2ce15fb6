package main

import (
	"os"
	"testing"
)

func TestTheFrameworkWritesItsLogWhereTerraformKeepsOne(t *testing.T) {
	for _, one := range []struct{ name, value, level string }{
		{"TF_LOG", "", "ERROR"},
		{"TF_LOG_CORE", "TRACE", "ERROR"},
		{"TF_LOG", "DEBUG", ""},
		{"TF_LOG_PROVIDER", "TRACE", ""},
		{"TF_LOG_SDK", "INFO", "INFO"},
	} {
		t.Run(one.name+"="+one.value, func(t *testing.T) {
			for _, name := range []string{"TF_LOG", "TF_LOG_CORE", "TF_LOG_PROVIDER", "TF_LOG_SDK"} {
				t.Setenv(name, "")
			}
			t.Setenv(one.name, one.value)
			quiet()
			if found := os.Getenv("TF_LOG_SDK"); found != one.level {
				t.Errorf("the framework writes from %q on, not from %q", found, one.level)
			}
		})
	}
}
