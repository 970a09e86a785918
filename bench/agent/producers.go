package main

import "context"

func producers(ctx context.Context, o *options) error { return nil }
