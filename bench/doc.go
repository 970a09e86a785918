// Package bench measures the suite against peers; it is a module of its own so
// that peers' clients never enter the product's go.mod.
package bench
