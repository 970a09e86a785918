package main
import "context"
const fetchBytes = 1<<20
func fetches(context.Context,*options) error {return nil}
func recovery(context.Context,*options) error {return nil}
func manyPartitions(context.Context,*options) error {return nil}
