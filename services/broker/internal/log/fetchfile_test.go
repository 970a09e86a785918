package log

import (
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pipe is a TCP connection over loopback, and what comes out of it.
func pipe(t testing.TB) (*net.TCPConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	return in.(*net.TCPConn), out
}

func TestFetchFile(t *testing.T) {
	t.Parallel()
	p, want := readerPartition(t, testLog(t, Config{Dirs: []string{t.TempDir()}}), 200, PartitionConfig{SegmentBytes: 4000, IndexIntervalBytes: 300})
	in, out := pipe(t)
	for _, maxBytes := range []int{1, 300, 1000, 1 << 20} {
		got := make(map[int64]string)
		for at := int64(0); at < 200; {
			s, ok, err := p.FetchFile(FetchOptions{Offset: at, MaxBytes: maxBytes})
			if err != nil || !ok || s.NextOffset <= at {
				t.Fatal(at, s, ok, err)
			}
			if n, err := s.SendTo(in); n != s.Length || err != nil {
				t.Fatal(n, s.Length, err)
			}
			b := make([]byte, s.Length)
			if _, err := io.ReadFull(out, b); err != nil {
				t.Fatal(err)
			}
			records := recordsOf(t, b)
			if maxBytes == 1 && len(records) != 1 || maxBytes > 1 && len(b) > maxBytes {
				t.Errorf("at most %d bytes: %d bytes, %d records", maxBytes, len(b), len(records))
			}
			if _, all := records[s.NextOffset-1]; !all {
				t.Errorf("the next offset is %d behind %v", s.NextOffset, records)
			}
			maps.Copy(got, records)
			at = s.NextOffset
			s.Close()
		}
		compare(t, want, got)
	}
	mustAppend(t, p, AppendOptions{}, "in memory")
	if _, ok, err := p.FetchFile(FetchOptions{Offset: 200}); ok || err != nil {
		t.Error("a section of what is in memory:", ok, err)
	}
}

// TestFetchFileChecksWhatComesFromTheDisk damages a section that was checked: it is found once the system has to read it anew.
func TestFetchFileChecksWhatComesFromTheDisk(t *testing.T) {
	t.Parallel()
	p, _ := readerPartition(t, testLog(t, Config{Dirs: []string{t.TempDir()}}), 100, PartitionConfig{})
	fetch := func() error {
		s, ok, err := p.FetchFile(FetchOptions{})
		if ok {
			s.Close()
		}
		return err
	}
	if err := fetch(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(activePath(p), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, 1000); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
	if err := fetch(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func TestFetchFileToAConnectionThatIsGone(t *testing.T) {
	t.Parallel()
	p, _ := readerPartition(t, testLog(t, Config{Dirs: []string{t.TempDir()}}), 10, PartitionConfig{})
	s, ok, err := p.FetchFile(FetchOptions{})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer s.Close()
	in, _ := pipe(t)
	if err := in.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.SendTo(in); !errors.Is(err, unix.EPIPE) || n != 0 {
		t.Errorf("sent %d: %v", n, err)
	}
}
