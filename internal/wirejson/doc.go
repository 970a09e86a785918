// Package wirejson is the suite's JSON mapping, the same on REST, on Connect and in the client commands.
//
// It owns two mappings. Messages have one of their own, because a JSON payload is kept byte for byte: `key` is a string,
// `value` is any JSON value whose very text is the payload, `valueBase64` carries all other bytes. Everything else follows
// protojson, with durations such as `5ms` and enum names without their prefix accepted as well.
//
// The hot path (DecodePublish, AppendResults, AppendStored) works on plain structs without reflection; the rest is driven by
// descriptors. Errors are *errs.Error and name line, column and the path of the field.
//
// It may know the generated message types and the gateway's and Connect's codec interfaces. It may not know services,
// channels or the log, and it checks no rule that protobuf validation states.
//
// All functions and codecs may be used concurrently; a Batch belongs to one goroutine at a time.
package wirejson
