package api

import "encoding/base64"

const maxPage = 1000

// pageSize is what a list request asks for, within bounds.
func pageSize(n int32) int {
	if n <= 0 || n > maxPage {
		return maxPage
	}
	return int(n)
}

// A page token is the name after which the next page begins; opaque, so that it can become something else.

func pageToken(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }

func readPageToken(token string) (after string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", invalid("pageToken", "use the nextPageToken of the page before", "the page token %q is none of ours", token)
	}
	return string(b), nil
}
