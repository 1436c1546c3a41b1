package wshard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Kind is the stable reason of an [Error]. The Python library uses the same words.
type Kind string

// The kinds of errors. Each is also a target for [errors.Is]: errors.Is(err, wshard.Corrupt).
const (
	Corrupt        Kind = "corrupt"          // bytes that the format forbids, or that fail a checksum
	Unsupported    Kind = "unsupported"      // valid, but beyond this library
	LimitExceeded  Kind = "limit_exceeded"   // beyond the limits of the specification
	BadInput       Kind = "bad_input"        // a value of the caller that cannot work
	SchemaMismatch Kind = "schema_mismatch"  // a step that does not fit the channels of its recording
	NotFound       Kind = "not_found"        // no such block or channel
	ObjectNotFound Kind = "object_not_found" // no such file
	AlreadyExists  Kind = "already_exists"   // a file or journal is in the way
	Conflict       Kind = "conflict"         // another writer owns the journal or the episode
	AccessDenied   Kind = "access_denied"    // the system or the server refuses access
	Storage        Kind = "storage"          // the disk or the server failed
)

// Error makes a Kind usable as a target of [errors.Is].
func (k Kind) Error() string { return string(k) }

// Error states a fact, and where possible one next step.
type Error struct {
	Kind    Kind
	Message string
	Hint    string
	Err     error // the cause, if any
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return "wshard: " + e.Message
	}
	return "wshard: " + e.Message + ". " + e.Hint
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the target is the kind of this error. A limit and a mismatch are bad input too, and an existing
// file is a conflict, like in the Python library.
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	if !ok {
		return false
	}
	switch e.Kind {
	case kind:
		return true
	case LimitExceeded, SchemaMismatch:
		return kind == BadInput
	case ObjectNotFound:
		return kind == NotFound
	case AlreadyExists:
		return kind == Conflict
	}
	return false
}

func errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func corruptf(format string, args ...any) error     { return errorf(Corrupt, format, args...) }
func unsupportedf(format string, args ...any) error { return errorf(Unsupported, format, args...) }
func badInputf(format string, args ...any) error    { return errorf(BadInput, format, args...) }

func (e *Error) withHint(hint string) error {
	e.Hint = hint
	return e
}

// asBadInput turns a refusal of our own parser into an error of the caller, who asked to write the value.
func asBadInput(err error, what string) error {
	var found *Error
	if errors.As(err, &found) && (found.Kind == Corrupt || found.Kind == Unsupported) {
		return &Error{Kind: BadInput, Message: what + ": " + found.Message, Err: err}
	}
	return err
}

// explainOS wraps an error of the operating system. Errors of this package pass unchanged.
func explainOS(err error, path string) error {
	var ours *Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	kind := Storage
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = ObjectNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = AccessDenied
	case errors.Is(err, syscall.ENAMETOOLONG):
		kind = BadInput
	}
	return &Error{Kind: kind, Message: fmt.Sprintf("%s: %v", path, reasonOf(err)), Err: err}
}

// reasonOf drops the path from an error of the operating system, because the message names it already.
func reasonOf(err error) error {
	var place *os.PathError
	if errors.As(err, &place) {
		return place.Err
	}
	return err
}
