// Package client speaks with control.
//
// Laws:
//  1. A call is made again only where it cannot have been done, or may be done twice: the connection was refused, control
//     said when to come back (503, 429 with Retry-After), or the call reads.
//  2. Reading resources costs requests by the number of kinds, not of resources: a kind is listed once for a run, and again
//     after a write to it.
//  3. What is written is written under the condition that it is as it was read (entity tags).
//  4. A call ends within Options.Timeout, however often it is made. Once control could not be reached by one, the others say so at once
//     (Repeated): a run of a thousand resources neither waits a thousand times nor says the same a thousand times.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"terraform-provider-gtm/internal/values"
)

const (
	attempts    = 6
	firstPause  = 200 * time.Millisecond
	longestWait = 30 * time.Second
	// outage is for how long nothing more is tried once control could not be reached.
	outage  = 30 * time.Second
	largest = 256 << 20 // bytes of an answer
)

// Options are how control is spoken with.
type Options struct {
	Endpoint  string
	Token     string
	CAFile    string
	Insecure  bool
	ManagedBy string
	Agent     string
	// Timeout is how long a call may take, with all its tries; 0: a minute.
	Timeout time.Duration
	// Transport carries requests in place of the network; nil: the network does.
	Transport http.RoundTripper
}

// Client speaks with one control. It is safe for use by several goroutines.
type Client struct {
	options Options
	http    *http.Client
	base    string
	gone    atomic.Pointer[unreachable]
}

// unreachable is since when control cannot be reached.
type unreachable struct{ since time.Time }

// Repeated is why a call failed, or was not made, that another call of this run has said already.
type Repeated struct{ base string }

func (e *Repeated) Error() string {
	return fmt.Sprintf("control at %s cannot be reached, as another error of this run says", e.base)
}

// IsRepeated says whether another call has said why this one failed.
func IsRepeated(err error) bool {
	var repeated *Repeated
	return errors.As(err, &repeated)
}

// New checks the options; it sends nothing.
func New(options Options) (*Client, error) {
	base := strings.TrimRight(strings.TrimSpace(options.Endpoint), "/")
	parsed, err := url.Parse(base)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Hostname() == "" || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, fmt.Errorf("`%s` is not a URL such as https://gtm.example.com", options.Endpoint)
	}
	if parsed.Scheme == "http" && !options.Insecure && !loopback(parsed.Hostname()) {
		return nil, fmt.Errorf("`%s` is http to another machine, which would send the token in the clear: put TLS in front of it and use https, or set `insecure = true` where the network between is your own", base)
	}
	options.Token = strings.TrimSpace(options.Token)
	if options.Token == "" || strings.ContainsFunc(options.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("this needs a token, such as `gtm token create terraform --role operator` makes: set `token`, or GTM_TOKEN")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	transport.MaxIdleConnsPerHost = 16
	if options.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		text, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: `%s` holds no certificate (PEM)", options.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	var carrier http.RoundTripper = transport
	if options.Transport != nil {
		carrier = options.Transport
	}
	return &Client{
		options: options,
		base:    base,
		http: &http.Client{
			Transport: carrier,
			// A redirect would carry the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Manager is for which workspace resources are managed.
func (c *Client) Manager() string { return c.options.ManagedBy }

func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address := net.ParseIP(host)
	return address != nil && address.IsLoopback()
}

// Call is one request. Into is what a JSON answer is read into; nil: nothing.
type Call struct {
	Method  string
	Path    string
	Query   url.Values
	Headers map[string]string
	Body    any
	Into    any
	// Reads says that it changes nothing, and may be made again whatever has become of it.
	Reads bool
}

// Do makes a call, again where that is safe; the answer's headers.
func (c *Client) Do(ctx context.Context, call Call) (http.Header, error) {
	known := c.gone.Load()
	if known != nil && time.Since(known.since) < outage {
		return nil, &Repeated{c.base}
	}
	limited, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	header, err := c.tried(limited, call)
	switch {
	case err == nil:
		c.gone.CompareAndSwap(known, nil)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w (%s)", ctx.Err(), err)
	case !IsUnreached(err):
	case !c.gone.CompareAndSwap(known, &unreachable{time.Now()}):
		return nil, &Repeated{c.base} // another call of just now has said it
	}
	return header, err
}

func (c *Client) tried(ctx context.Context, call Call) (http.Header, error) {
	var body []byte
	if call.Body != nil {
		var err error
		if body, err = json.Marshal(call.Body); err != nil {
			return nil, err
		}
	}
	for made := 1; ; made++ {
		header, after, err := c.once(ctx, call, body)
		if err == nil {
			return header, nil
		}
		if after < 0 || made == attempts {
			return nil, err
		}
		pause := time.Duration(float64(firstPause<<(made-1)) * (0.5 + rand.Float64()/2))
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(max(pause, after)):
		}
	}
}

// once makes a call; after is how long to wait before it may be made again, negative: it may not.
func (c *Client) once(ctx context.Context, call Call, body []byte) (header http.Header, after time.Duration, err error) {
	address := c.base + call.Path
	if len(call.Query) > 0 {
		address += "?" + call.Query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.Method, address, bytes.NewReader(body))
	if err != nil {
		return nil, -1, err
	}
	request.Header.Set("Accept", "application/json, application/problem+json")
	request.Header.Set("Authorization", "Bearer "+c.options.Token)
	request.Header.Set("User-Agent", c.options.Agent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.options.ManagedBy != "" && call.Method != http.MethodGet {
		request.Header.Set("GTM-Managed-By", c.options.ManagedBy)
	}
	for name, value := range call.Headers {
		request.Header.Set(name, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, again(ctx, call, err), c.unreached(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, largest+1))
	if err != nil {
		if silent := c.silent(ctx); silent != nil {
			return nil, -1, silent
		}
		return nil, again(ctx, call, err), fmt.Errorf("control at %s broke the connection off: %w", c.base, err)
	}
	if len(text) > largest {
		return nil, -1, &NotGtm{c.base, fmt.Sprintf("%s, more than %d MiB", response.Status, largest>>20)}
	}
	if response.StatusCode >= 400 {
		return nil, wait(response), c.problem(response, text)
	}
	if response.StatusCode >= 300 {
		return nil, -1, &NotGtm{c.base, response.Status}
	}
	if call.Into != nil && values.Unmarshal(text, call.Into) != nil {
		return nil, -1, &NotGtm{c.base, response.Status + ", " + response.Header.Get("Content-Type")}
	}
	return response.Header, 0, nil
}

func again(ctx context.Context, call Call, err error) time.Duration {
	var dial *net.OpError
	refused := errors.As(err, &dial) && dial.Op == "dial"
	if ctx.Err() != nil || (!call.Reads && !refused) || untrusted(err) {
		return -1
	}
	return 0
}

// untrusted says whether it is TLS that does not come about, which trying again does not change.
func untrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &plain)
}

// unreachedError says that no call of now will reach control.
type unreachedError struct{ error }

func (e *unreachedError) Unwrap() error { return e.error }

// IsUnreached says whether control could not be reached, or did not answer in time.
func IsUnreached(err error) bool {
	var unreached *unreachedError
	return errors.As(err, &unreached)
}

// silent is what is said once a call's time is over; nil: it is not.
func (c *Client) silent(ctx context.Context) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return &unreachedError{fmt.Errorf("control at %s does not answer in time (%s): see whether it runs (`gtm status`), and what stands between; `timeout` in the provider block gives it longer", c.base, c.options.Timeout)}
}

// unreached says why control cannot be reached, and what to do about it where that is known.
func (c *Client) unreached(ctx context.Context, err error) error {
	if silent := c.silent(ctx); silent != nil {
		return silent
	}
	var said error = &unreachedError{fmt.Errorf("control at %s cannot be reached: %w", c.base, unwrapped(err))}
	var authority x509.UnknownAuthorityError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("%w; if its certificate is of an authority of your own, give that one's certificate (PEM) as `ca_file`, or GTM_CA_FILE", said)
	case errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w; it speaks no TLS: is `endpoint` to begin with http://?", said)
	}
	return said
}

func wait(response *http.Response) time.Duration {
	if response.StatusCode != http.StatusServiceUnavailable && response.StatusCode != http.StatusTooManyRequests {
		return -1
	}
	said := response.Header.Get("Retry-After")
	if at, err := http.ParseTime(said); err == nil {
		return within(max(time.Until(at), 0))
	}
	seconds, err := strconv.ParseUint(said, 10, 32)
	if err != nil {
		return -1
	}
	return within(time.Duration(seconds) * time.Second)
}

// within is a time that may be waited; negative: it is too long.
func within(asked time.Duration) time.Duration {
	if asked > longestWait {
		return -1
	}
	return asked
}

func (c *Client) problem(response *http.Response, text []byte) error {
	problem := &Problem{}
	if response.Header.Get("X-GTM-Tier") != "control" || json.Unmarshal(text, problem) != nil {
		return &NotGtm{c.base, response.Status}
	}
	problem.Status, problem.managedBy = response.StatusCode, c.options.ManagedBy
	return problem
}

func unwrapped(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// Segment is a name as one segment of a path.
func Segment(name string) string {
	escaped := url.PathEscape(name)
	if escaped == "." || escaped == ".." {
		return strings.ReplaceAll(escaped, ".", "%2E")
	}
	return escaped
}
