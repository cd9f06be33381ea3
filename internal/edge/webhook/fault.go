package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/tallystick/tallystick/internal/edge/outbound"
	"github.com/tallystick/tallystick/internal/service/sinks"
)

// fault is why a delivery failed, in words that a tenant may read: causes quote addresses, certificates and bytes of
// the receiver, so they are kept for errors.Is and not shown.
type fault struct {
	says  string
	cause error
}

func (f *fault) Error() string { return f.says }
func (f *fault) Unwrap() error { return f.cause }

// verdict is what a status says of a delivery.
func verdict(status int) error {
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusGone:
		return fmt.Errorf("the receiver answered 410: %w", sinks.ErrGone)
	case status >= 300 && status < 400:
		return fmt.Errorf("the receiver answered %d: redirects are not followed, so the sink needs the URL that it "+
			"leads to", status)
	}
	return fmt.Errorf("the receiver answered %d", status)
}

// failure names what ended an attempt without an answer.
func failure(ctx, attempt context.Context, err error, timeout time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return &fault{"the delivery was stopped", ctx.Err()}
	case attempt.Err() != nil:
		return &fault{fmt.Sprintf("the receiver did not answer within %s", timeout), attempt.Err()}
	}
	var unreached *outbound.Error
	if errors.As(err, &unreached) {
		return &fault{unreached.Error(), err}
	}
	if says := certificate(err); says != "" {
		return &fault{says, err}
	}
	var plain tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &plain):
		return &fault{"the receiver does not speak TLS on this port", err}
	case errors.As(err, &alert):
		return &fault{"the receiver refused the TLS connection", err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return &fault{"the receiver closed the connection without an answer", err}
	}
	var network *net.OpError
	if errors.As(err, &network) {
		return &fault{"the connection to the receiver failed", err}
	}
	// The standard library has no types for these.
	return &fault{"the receiver closed the connection, or its answer breaks HTTP or a bound on its head", err}
}

// certificate names what is wrong with a receiver's certificate; empty if that is not what failed.
func certificate(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var other *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return "the receiver's certificate is signed by no authority that is trusted here"
	case errors.As(err, &name):
		return "the receiver's certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the receiver's certificate has expired, or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &other):
		return "the receiver's certificate is not valid"
	}
	return ""
}
