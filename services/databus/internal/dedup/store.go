package dedup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	fileSuffix = ".ids"
	// DefaultMaxIDs is about 64 MiB of tables.
	DefaultMaxIDs = 4 << 20
)

// Config of a Store.
type Config struct {
	Dir string
	// MaxIDs bounds what is remembered, of all channels together; 0: DefaultMaxIDs. Past it a channel that grows forgets its oldest
	// quarter window.
	MaxIDs int64
	Logger *slog.Logger     // nil: none
	Now    func() time.Time // nil: time.Now
	// Forgotten, if set, is told how many ids went before their time.
	Forgotten func(channel string, ids int)
}

// Store is the ids of one agent. All methods may run concurrently. The owner closes it.
type Store struct {
	cfg Config
	log *slog.Logger
	ids atomic.Int64

	mu       sync.Mutex
	channels map[string]*Channel
	doubts   []*Doubt
}

// Open reads what is in cfg.Dir. Nothing else may use the directory. Files of which the begin is damaged are removed; ErrVersion is
// returned for those of another version.
func Open(cfg Config) (*Store, error) {
	if cfg.MaxIDs <= 0 {
		cfg.MaxIDs = DefaultMaxIDs
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, log: cfg.Logger, channels: make(map[string]*Channel)}
	dirs, err := os.ReadDir(cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the memory of ids: %w", err)
	}
	for _, d := range dirs {
		name, ok := channelOf(d.Name())
		if !ok || !d.IsDir() {
			continue
		}
		if err := s.load(name); err != nil {
			return nil, errors.Join(fmt.Errorf("open the memory of ids of channel %s: %w", name, err), s.Close())
		}
	}
	return s, nil
}

// dirOf names a channel's directory; no name becomes one with a meaning, such as "..".
func dirOf(channel string) string { return "channel-" + url.PathEscape(channel) }

func channelOf(dir string) (channel string, ok bool) {
	escaped, ok := strings.CutPrefix(dir, "channel-")
	channel, err := url.PathUnescape(escaped)
	return channel, ok && err == nil
}

// load reads a channel's files. The window is not known yet, so all of them count.
func (s *Store) load(name string) error {
	c := s.Channel(name, 24*time.Hour)
	files, err := filepath.Glob(filepath.Join(c.dir, "*"+fileSuffix))
	if err != nil {
		return err
	}
	for _, f := range files {
		g, err := openGeneration(f, func(g *generation, pos int64, h head, slots []slot) { s.addDoubt(c, g, pos, h, slots) })
		if errors.Is(err, errRecord) {
			s.log.Warn("an id file without a whole header is removed", slog.String("file", f))
			if err := os.Remove(f); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		s.ids.Add(int64(g.table.count))
		c.gens = append(c.gens, g)
	}
	slices.SortFunc(c.gens, func(a, b *generation) int {
		return cmp.Or(a.opened.Compare(b.opened), cmp.Compare(a.name, b.name))
	})
	return nil
}

// Channel returns a channel's ids and sets its window.
func (s *Store) Channel(name string, window time.Duration) *Channel {
	s.mu.Lock()
	c := s.channels[name]
	if c == nil {
		c = &Channel{store: s, name: name, dir: filepath.Join(s.cfg.Dir, dirOf(name)), flying: make(map[Key]*Claim)}
		s.channels[name] = c
	}
	s.mu.Unlock()
	c.SetWindow(window)
	return c
}

// grown keeps the bound after a channel grew.
func (s *Store) grown(c *Channel, n int) {
	if s.ids.Add(int64(n)) <= s.cfg.MaxIDs {
		return
	}
	c.mu.Lock()
	forgotten := 0
	for s.ids.Load() > s.cfg.MaxIDs && len(c.gens) > 1 {
		forgotten += c.dropOldestLocked()
	}
	if forgotten == 0 && len(c.gens) == 1 {
		c.number = max(c.number, 1)
		c.gens[0].opened = time.Time{} // so that the next record begins another, and this one can go
	}
	c.mu.Unlock()
	if forgotten > 0 {
		s.log.Warn("more ids than may be remembered: the oldest are forgotten before their time", slog.String("channel", c.name), slog.Any("ids", forgotten), slog.Any("bound", s.cfg.MaxIDs))
		if s.cfg.Forgotten != nil {
			s.cfg.Forgotten(c.name, forgotten)
		}
	}
}

// Expire drops what is past its window in every channel; call it now and then.
func (s *Store) Expire() {
	s.mu.Lock()
	all := make([]*Channel, 0, len(s.channels))
	for _, c := range s.channels {
		all = append(all, c)
	}
	s.mu.Unlock()
	now := s.cfg.Now()
	for _, c := range all {
		c.expire(now)
	}
}

// IDs is how many are remembered.
func (s *Store) IDs() int64 { return s.ids.Load() }

// Close closes the files. Claims that are on their way stay in doubt for the next run. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, c := range s.channels {
		c.mu.Lock()
		for _, g := range c.gens {
			if err := g.file.Close(); !errors.Is(err, os.ErrClosed) {
				errs = append(errs, err)
			}
		}
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Doubt is a batch of an earlier run of which nobody knows whether it is in the log. One of its methods is called, once.
type Doubt struct {
	Channel string
	Target  Target
	Count   int // ids in it
	intent  *Intent
}

func (s *Store) addDoubt(c *Channel, g *generation, pos int64, h head, slots []slot) {
	in := &Intent{channel: c, gen: g, pos: pos, target: h.target}
	for _, sl := range slots {
		m := c.flying[sl.key]
		if m == nil {
			m = &Claim{key: sl.key, sum: sl.sum, doubt: true, created: time.UnixMilli(h.created), done: make(chan struct{})}
			c.flying[sl.key] = m
		}
		m.records++
		in.members = append(in.members, Member{Claim: m, Index: int(sl.index), Timestamp: sl.timestamp})
	}
	s.doubts = append(s.doubts, &Doubt{Channel: c.name, Target: h.target, Count: len(slots), intent: in})
}

// Doubts returns what is to be found out, and forgets it.
func (s *Store) Doubts() []*Doubt {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.doubts
	s.doubts = nil
	return d
}

// Found says that the batch is in the log, or in the spool.
func (d *Doubt) Found(a Answer) { d.intent.Done(a) }

// Lost says that it is not and never will be.
func (d *Doubt) Lost() {
	d.intent.Void()
	claims := make([]*Claim, 0, len(d.intent.members))
	for _, m := range d.intent.members {
		claims = append(claims, m.Claim)
	}
	d.intent.channel.Abandon(claims...)
}
