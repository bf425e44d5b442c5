//go:build !linux

package sqlite

// checkFS checks nothing here: that the file is on a local disk is the operator's word.
func checkFS(string, func(string) (int64, error), bool) error { return nil }
