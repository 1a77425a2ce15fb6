package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// carrier answers requests by a function.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(request *http.Request) (*http.Response, error) { return c(request) }

func speaking(t *testing.T, c carrier) *Client {
	t.Helper()
	made, err := New(Options{Endpoint: "http://localhost", Token: "t", Transport: c})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func answer(status int, body io.Reader, headers ...string) *http.Response {
	found := &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(body), Header: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		found.Header.Set(headers[i], headers[i+1])
	}
	return found
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for said, expected := range map[string]time.Duration{
			"0": 0, "5": 5 * time.Second, "30": 30 * time.Second, "31": -1, "-1": -1, "": -1, "soon": -1, "1.5": -1,
			"18446744074": -1, "99999999999999999999": -1, "9223372037": -1,
			now.Add(7 * time.Second).UTC().Format(http.TimeFormat): 7 * time.Second,
			now.Add(-time.Hour).UTC().Format(http.TimeFormat):      0,
			now.Add(time.Hour).UTC().Format(http.TimeFormat):       -1,
		} {
			if got := wait(answer(503, nil, "Retry-After", said)); got != expected {
				t.Errorf("Retry-After: %s: %s", said, got)
			}
		}
		if got := wait(answer(500, nil, "Retry-After", "1")); got >= 0 {
			t.Errorf("500 is made again after %s", got)
		}
	})
}

// TestAgain: what may have been done is not done twice; what reads is asked for again, a few times and not for ever.
func TestAgain(t *testing.T) {
	reset := errors.New("connection reset by peer")
	refused := &url.Error{Op: "Get", URL: "x", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	for name, one := range map[string]struct {
		err      error
		status   int
		after    string
		reads    bool
		expected int
	}{
		"a read that breaks":       {err: reset, reads: true, expected: attempts},
		"a write that breaks":      {err: reset, expected: 1},
		"a write that is refused":  {err: refused, expected: attempts},
		"a write that is to wait":  {status: 503, after: "1", expected: attempts},
		"a write without a time":   {status: 503, expected: 1},
		"a write that is too much": {status: 429, after: "2", expected: attempts},
		"a write that is wrong":    {status: 422, after: "1", expected: 1},
		"a read that fails":        {status: 500, reads: true, expected: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made := 0
				c := speaking(t, func(*http.Request) (*http.Response, error) {
					if made++; one.err != nil {
						return nil, one.err
					}
					return answer(one.status, strings.NewReader("{}"), "Retry-After", one.after, "X-GTM-Tier", "control"), nil
				})
				if _, err := c.Do(context.Background(), Call{Method: "POST", Path: "/x", Reads: one.reads}); err == nil {
					t.Error("no error")
				}
				if made != one.expected {
					t.Errorf("made %d times", made)
				}
			})
		})
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := speaking(t, func(*http.Request) (*http.Response, error) {
			return answer(503, strings.NewReader("{}"), "Retry-After", "20", "X-GTM-Tier", "control"), nil
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := c.Do(ctx, Call{Method: "GET", Path: "/x", Reads: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

func TestAnAnswerHasAnEnd(t *testing.T) {
	c := speaking(t, func(*http.Request) (*http.Response, error) { return answer(200, endless{}), nil })
	var notGtm *NotGtm
	if _, err := c.Do(context.Background(), Call{Method: "GET", Path: "/x", Reads: true}); !errors.As(err, &notGtm) || !strings.Contains(err.Error(), "MiB") {
		t.Error(err)
	}
}

func TestWhatIsNoControl(t *testing.T) {
	for name, response := range map[string]func() *http.Response{
		"a page":              func() *http.Response { return answer(200, strings.NewReader("<html>"), "Content-Type", "text/html") },
		"an error of another": func() *http.Response { return answer(404, strings.NewReader("{}")) },
		"a redirect": func() *http.Response {
			return answer(302, strings.NewReader(""), "Location", "https://evil.example.com/")
		},
		"an edge":              func() *http.Response { return answer(404, strings.NewReader(`{"detail": "x"}`), "X-GTM-Tier", "edge") },
		"a problem in no JSON": func() *http.Response { return answer(404, strings.NewReader("x"), "X-GTM-Tier", "control") },
	} {
		asked := 0
		c := speaking(t, func(*http.Request) (*http.Response, error) { asked++; return response(), nil })
		var into struct{}
		var notGtm *NotGtm
		if _, err := c.Do(context.Background(), Call{Method: "GET", Path: "/x", Into: &into, Reads: true}); !errors.As(err, &notGtm) {
			t.Errorf("%s: %v", name, err)
		}
		if asked != 1 {
			t.Errorf("%s: asked %d times", name, asked)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, good := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://[::1]:8080/": true, "http://localhost": true, "https://gtm.example.com/control/": true, " https://a ": true,
		"http://gtm.example.com": false, "gtm.example.com": false, "": false, "ftp://x": false, "https://": false, "https://a?b=c": false, "https://a#b": false, "http://127.0.0.1.example.com": false,
	} {
		if _, err := New(Options{Endpoint: endpoint, Token: "t"}); (err == nil) != good {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for token, good := range map[string]bool{"gtm_x": true, " gtm_x\n": true, "": false, "a b": false, "a\nb": false, "ü": false} {
		if _, err := New(Options{Endpoint: "https://a", Token: token}); (err == nil) != good {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if _, err := New(Options{Endpoint: "http://gtm.example.com", Token: "t", Insecure: true}); err != nil {
		t.Error(err)
	}
}

func TestSegmentsStayWithinTheirPath(t *testing.T) {
	for name, expected := range map[string]string{"a": "a", "a/b": "a%2Fb", "..": "%2E%2E", ".": "%2E", "a b?c#d": "a%20b%3Fc%23d", "%2e": "%252e"} {
		if got := Segment(name); got != expected {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestAControlThatHangs: a call ends in a minute, and says so; nine others of the same moment, and those after it, say no more than that it was said.
func TestAControlThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, hangs := 0, true
		control := speaking(t, func(request *http.Request) (*http.Response, error) {
			asked++
			if !hangs {
				return answer(200, strings.NewReader("{}")), nil
			}
			<-request.Context().Done()
			return nil, &url.Error{Op: "Get", URL: "/", Err: request.Context().Err()}
		})
		call := Call{Method: "GET", Path: "/", Reads: true}
		since, failed := time.Now(), make(chan error)
		for range 10 {
			go func() {
				_, err := control.Do(t.Context(), call)
				failed <- err
			}()
		}
		said := 0
		for range 10 {
			if err := <-failed; !IsRepeated(err) {
				said++
				if !strings.Contains(err.Error(), "does not answer in time (1m0s)") {
					t.Error(err)
				}
			}
		}
		if said != 1 || asked != 10 || time.Since(since) != time.Minute {
			t.Errorf("%d said it, after %s and %d requests", said, time.Since(since), asked)
		}
		if _, err := control.Do(t.Context(), call); !IsRepeated(err) || asked != 10 {
			t.Errorf("after %d requests: %v", asked, err)
		}
		hangs = false
		time.Sleep(outage)
		if _, err := control.Do(t.Context(), call); err != nil {
			t.Error(err)
		}
	})
}

// TestNobodyListens: it is tried for some seconds, and said once.
func TestNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := speaking(t, func(*http.Request) (*http.Response, error) {
			return nil, &url.Error{Op: "Get", URL: "/", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
		})
		_, first := control.Do(t.Context(), Call{Method: "PUT", Path: "/"})
		_, second := control.Do(t.Context(), Call{Method: "GET", Path: "/", Reads: true})
		if IsRepeated(first) || !strings.Contains(first.Error(), "cannot be reached") || !strings.Contains(first.Error(), "connection refused") || !IsRepeated(second) {
			t.Errorf("%v; %v", first, second)
		}
	})
}
