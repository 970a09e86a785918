// Package config owns how a service's settings are read: one YAML file, over it the environment, over that the
// command line, all into one struct that holds the defaults beforehand. Nothing unknown is accepted, and every
// error names where a setting came from, its key, and what is allowed.
//
// It knows no service's settings; those are structs of their own. A field's key is its yaml tag, or its name in
// snake case; the fields of an embedded struct, or of one tagged ",inline", count as its parent's. A type can
// check itself by a method Validate() error.
package config
