package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// storageService implements brokerv1.StorageServiceServer, and Connect's interface, which is the same.
type storageService struct {
	brokerv1.UnimplementedStorageServiceServer
	log *log.Log
}

func (s *storageService) ListDirectories(context.Context, *brokerv1.ListDirectoriesRequest) (*brokerv1.ListDirectoriesResponse, error) {
	out := &brokerv1.ListDirectoriesResponse{}
	for _, d := range s.log.Dirs() {
		out.Directories = append(out.Directories, directory(d))
	}
	return out, nil
}

func (s *storageService) RestoreDirectory(_ context.Context, req *brokerv1.RestoreDirectoryRequest) (*brokerv1.RestoreDirectoryResponse, error) {
	if !s.has(req.GetPath()) {
		return nil, errs.New(errs.NotFound, "DIRECTORY_NOT_FOUND", "the broker has no data directory %q", req.GetPath()).
			WithField("path").WithNext("use a path that databus directory list shows")
	}
	if err := s.log.RestoreDir(req.GetPath()); err != nil {
		return nil, errs.New(errs.Precondition, "DIRECTORY_FAILED", "restore directory %s: it does not work yet", req.GetPath()).
			WithNext("mend it and try again").Wrap(err)
	}
	for _, d := range s.log.Dirs() {
		if d.Path == req.GetPath() {
			return &brokerv1.RestoreDirectoryResponse{Directory: directory(d)}, nil
		}
	}
	return &brokerv1.RestoreDirectoryResponse{}, nil
}

func (s *storageService) has(path string) bool {
	for _, d := range s.log.Dirs() {
		if d.Path == path {
			return true
		}
	}
	return false
}

// fullBelow is how many bytes must be left for a directory not to be called full: those of one large batch.
const fullBelow = 1 << 20

func directory(d log.DirStatus) *brokerv1.Directory {
	out := &brokerv1.Directory{
		Path: d.Path, State: brokerv1.DirectoryState_DIRECTORY_STATE_HEALTHY,
		FreeBytes: int64(d.Free), TotalBytes: int64(d.Total), //nolint:gosec // no disk has 2^63 bytes
		Segments: int64(d.Segments),
	}
	switch {
	case d.Err != nil:
		out.State, out.Error = brokerv1.DirectoryState_DIRECTORY_STATE_FENCED, d.Err.Error()
		out.FenceTime = timestamppb.New(d.Since)
	case d.Free < fullBelow:
		out.State = brokerv1.DirectoryState_DIRECTORY_STATE_FULL
	}
	return out
}
