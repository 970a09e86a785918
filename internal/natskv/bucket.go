package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/databus-suite/databus/internal/errs"
)

// Reasons of the errors that this package returns.
const (
	ReasonNotFound    = "METADATA_NOT_FOUND"
	ReasonExists      = "METADATA_EXISTS"
	ReasonConflict    = "METADATA_CONFLICT"
	reasonTooLarge    = "METADATA_TOO_LARGE"
	reasonUnavailable = "METADATA_UNAVAILABLE"
	reasonCorrupt     = "METADATA_CORRUPT"
	reasonNoSpace     = "NO_SPACE"
)

// retryAfter is what callers are told to wait when the servers are away: about as long as a leader election takes.
const retryAfter = time.Second

// noSpaceRetry is what they are told to wait for room on a disk.
const noSpaceRetry = 5 * time.Second

// Codec turns values into bytes and back.
type Codec[T any] struct {
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)
}

// JSON is the codec of values that people may want to read with NATS's own tools. Unknown fields are ignored, so that an
// older binary reads what a newer one wrote.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(b []byte) (v T, err error) { err = json.Unmarshal(b, &v); return v, err },
	}
}

// BucketConfig describes a bucket. It is applied where the bucket is made; an existing one stays as its operator has it.
type BucketConfig struct {
	Name     string // letters, digits, `_` and `-`
	History  int    // values kept a key, the current one included: 1 to 64; 0: 1
	Replicas int    // 0: 1
}

// Bucket is a typed set of keys. Its methods may run concurrently. They return errs of the codes NotFound, AlreadyExists,
// Conflict, TooLarge, Unavailable (retryable) and DataLoss, and the context's error.
type Bucket[T any] struct {
	name  string
	conn  *Conn
	kv    jetstream.KeyValue
	codec Codec[T]
}

// Entry is a key's value at a revision. Revisions grow by each write to the bucket and never repeat.
type Entry[T any] struct {
	Key      string
	Value    T
	Revision uint64
	Time     time.Time
	Deleted  bool // a delete marker; Value is zero
}

// OpenBucket opens a bucket and makes it where it does not exist.
func OpenBucket[T any](ctx context.Context, c *Conn, cfg BucketConfig, codec Codec[T]) (*Bucket[T], error) {
	kv, err := c.js.KeyValue(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: cfg.Name, History: uint8(max(cfg.History, 1)), Replicas: max(cfg.Replicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was first
			kv, err = c.js.KeyValue(ctx, cfg.Name)
		}
	}
	if err != nil {
		return nil, translate(ctx, "open", cfg.Name, "", err)
	}
	return &Bucket[T]{name: cfg.Name, conn: c, kv: kv, codec: codec}, nil
}

// Get returns a key's current value.
func (b *Bucket[T]) Get(ctx context.Context, key string) (Entry[T], error) {
	encoded, err := encodeKey(key)
	if err != nil {
		return Entry[T]{}, b.invalidKey(err)
	}
	e, err := b.kv.Get(ctx, encoded)
	if err != nil {
		return Entry[T]{}, translate(ctx, "get", b.name, key, err)
	}
	return b.entry(e)
}

// Create writes a key that does not exist, or was deleted.
func (b *Bucket[T]) Create(ctx context.Context, key string, v T) (revision uint64, err error) {
	return b.write(ctx, "create", key, v, func(k string, raw []byte) (uint64, error) { return b.kv.Create(ctx, k, raw) })
}

// Update writes a key whose current revision is the one given, else it returns Conflict.
func (b *Bucket[T]) Update(ctx context.Context, key string, v T, revision uint64) (uint64, error) {
	return b.write(ctx, "update", key, v, func(k string, raw []byte) (uint64, error) { return b.kv.Update(ctx, k, raw, revision) })
}

// Put writes a key whatever it holds.
func (b *Bucket[T]) Put(ctx context.Context, key string, v T) (revision uint64, err error) {
	return b.write(ctx, "put", key, v, func(k string, raw []byte) (uint64, error) { return b.kv.Put(ctx, k, raw) })
}

func (b *Bucket[T]) write(ctx context.Context, op, key string, v T, put func(string, []byte) (uint64, error)) (uint64, error) {
	encoded, err := encodeKey(key)
	if err != nil {
		return 0, b.invalidKey(err)
	}
	raw, err := b.codec.Encode(v)
	if err != nil {
		return 0, errs.New(errs.Internal, "INTERNAL", "metadata: %s %s/%s: encode", op, b.name, key).Wrap(err)
	}
	if err := b.conn.room(op, b.name, key, len(raw)); err != nil {
		return 0, err
	}
	revision, err := put(encoded, raw)
	if err != nil {
		return 0, translate(ctx, op, b.name, key, err)
	}
	return revision, nil
}

// Delete removes a key whose current revision is the one given; 0 removes whatever it holds. Its history goes too.
func (b *Bucket[T]) Delete(ctx context.Context, key string, revision uint64) error {
	encoded, err := encodeKey(key)
	if err != nil {
		return b.invalidKey(err)
	}
	if err := b.conn.room("delete", b.name, key, 0); err != nil {
		return err
	}
	var opts []jetstream.KVDeleteOpt
	if revision > 0 {
		opts = append(opts, jetstream.LastRevision(revision))
	}
	if err := b.kv.Purge(ctx, encoded, opts...); err != nil {
		return translate(ctx, "delete", b.name, key, err)
	}
	return nil
}

// List returns every key's current value in the order of the keys.
func (b *Bucket[T]) List(ctx context.Context) ([]Entry[T], error) {
	w, err := b.kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, translate(ctx, "list", b.name, "", err)
	}
	defer w.Stop() //nolint:errcheck // only says that the connection is gone, which the next call says too
	list, err := b.drain(ctx, w)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(x, y Entry[T]) int { return strings.Compare(x.Key, y.Key) })
	return list, nil
}

// History returns what is kept of a key, newest first, delete markers included.
func (b *Bucket[T]) History(ctx context.Context, key string) ([]Entry[T], error) {
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, b.invalidKey(err)
	}
	raw, err := b.kv.History(ctx, encoded)
	if err != nil {
		return nil, translate(ctx, "read the history of", b.name, key, err)
	}
	list := make([]Entry[T], 0, len(raw))
	for _, e := range slices.Backward(raw) {
		entry, err := b.entry(e)
		if err != nil {
			return nil, err
		}
		list = append(list, entry)
	}
	return list, nil
}

// drain reads a watch up to its mark that everything there was has been sent.
func (b *Bucket[T]) drain(ctx context.Context, w jetstream.KeyWatcher) (list []Entry[T], err error) {
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return nil, translate(ctx, "list", b.name, "", nats.ErrConnectionClosed)
			}
			if e == nil {
				return list, nil
			}
			entry, err := b.entry(e)
			if err != nil {
				return nil, err
			}
			list = append(list, entry)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *Bucket[T]) entry(e jetstream.KeyValueEntry) (Entry[T], error) {
	key, err := decodeKey(e.Key())
	out := Entry[T]{Key: key, Revision: e.Revision(), Time: e.Created(), Deleted: e.Operation() != jetstream.KeyValuePut}
	if err == nil && !out.Deleted {
		out.Value, err = b.codec.Decode(e.Value())
	}
	if err != nil {
		return out, errs.New(errs.DataLoss, reasonCorrupt, "metadata: %s/%s at revision %d cannot be read", b.name, e.Key(), out.Revision).
			WithNext("it was written by a newer version or by hand: look at it with the nats tool, bucket %s", b.name).Wrap(err)
	}
	return out, nil
}

func (b *Bucket[T]) invalidKey(err error) error {
	return errs.New(errs.Invalid, "METADATA_KEY", "metadata: bucket %s: %v", b.name, err)
}

// translate gives a NATS error its code, once.
func translate(ctx context.Context, op, bucket, key string, err error) error {
	where := bucket
	if key != "" {
		where += "/" + key
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return errs.New(errs.NotFound, ReasonNotFound, "metadata: %s %s: there is no such key", op, where).Wrap(err)
	case errors.Is(err, jetstream.ErrKeyExists) && op == "create":
		return errs.New(errs.AlreadyExists, ReasonExists, "metadata: %s %s: the key exists", op, where).Wrap(err)
	case isWrongRevision(err):
		return errs.New(errs.Conflict, ReasonConflict, "metadata: %s %s: another change came first", op, where).
			WithNext("read it again and decide").Wrap(err)
	case errors.Is(err, nats.ErrMaxPayload):
		return errs.New(errs.TooLarge, reasonTooLarge, "metadata: %s %s: the value is larger than the server takes", op, where).Wrap(err)
	}
	return errs.New(errs.Unavailable, reasonUnavailable, "metadata: %s %s: the store does not answer", op, where).
		WithNext("check that NATS runs and that JetStream has a leader").WithRetryAfter(retryAfter).Wrap(err)
}

func isWrongRevision(err error) bool {
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}
