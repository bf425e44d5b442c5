package keys

import (
	"encoding/binary"
	"errors"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// packing is the form of what is sealed, its first byte. Everything else has its length before it: header lines may hold any
// byte, which JSON does not.
const packing = 1

// pack writes all of an answer but its status. Lengths are one more than they are, 0: there is none, so that no list and an
// empty one, no body and an empty one, stay apart.
func pack(a *claims.Answer) []byte {
	b := append(make([]byte, 0, 64+len(a.Body)+64*len(a.Header)), packing)
	b = appendBytes(b, []byte(a.Key), true)
	n := uint64(0)
	if a.Header != nil {
		n = uint64(len(a.Header)) + 1
	}
	b = binary.AppendUvarint(b, n)
	for _, f := range a.Header {
		b = appendBytes(b, []byte(f.Name), true)
		b = appendBytes(b, []byte(f.Value), true)
	}
	return appendBytes(b, a.Body, a.Body != nil)
}

func appendBytes(b, s []byte, there bool) []byte {
	if !there {
		return binary.AppendUvarint(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(s))+1), s...)
}

var errPacked = errors.New("not a packed answer")

// unpack is the inverse of pack.
func unpack(status int, b []byte) (*claims.Answer, error) {
	if len(b) == 0 || b[0] != packing {
		return nil, errPacked
	}
	u := unpacker{rest: b[1:]}
	a := &claims.Answer{Status: status, Key: u.text()}
	if n := u.length(); n > 0 {
		a.Header = make([]claims.Field, 0, min(n-1, uint64(len(u.rest))))
		for range n - 1 {
			a.Header = append(a.Header, claims.Field{Name: u.text(), Value: u.text()})
			if u.failed {
				return nil, errPacked
			}
		}
	}
	a.Body = u.bytes()
	if u.failed || len(u.rest) > 0 {
		return nil, errPacked
	}
	return a, nil
}

type unpacker struct {
	rest   []byte
	failed bool
}

func (u *unpacker) length() uint64 {
	n, size := binary.Uvarint(u.rest)
	if size <= 0 {
		u.failed, u.rest = true, nil
		return 0
	}
	u.rest = u.rest[size:]
	return n
}

func (u *unpacker) bytes() []byte {
	n := u.length()
	if n == 0 {
		return nil
	}
	if n-1 > uint64(len(u.rest)) {
		u.failed, u.rest = true, nil
		return nil
	}
	s := u.rest[: n-1 : n-1]
	u.rest = u.rest[n-1:]
	return s
}

func (u *unpacker) text() string { return string(u.bytes()) }
