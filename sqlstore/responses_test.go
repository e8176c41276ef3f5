package sqlstore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsestore"
)

func storedResponse(id string, expires time.Time, items ...string) *responsestore.Response {
	r := &responsestore.Response{ID: id, Account: "acme", Created: noon, Expires: expires, Body: []byte(`{"id":"` + id + `"}`)}
	for _, item := range items {
		r.Output = append(r.Output, responsestore.Item{ID: item, Body: []byte(`{"id":"` + item + `"}`)})
	}
	return r
}

func mustSave(t testing.TB, s *Store, responses ...*responsestore.Response) {
	t.Helper()
	for _, r := range responses {
		require.NoError(t, s.SaveResponse(t.Context(), r))
	}
}

func TestStore_PruneResponses(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{Logger: discardLogger})
		s.db.now = func() time.Time { return noon }
		const n = pruneResponsesBatch + 10
		for i := range n {
			mustSave(t, s, storedResponse(fmt.Sprint("old_", i), noon.Add(-time.Duration(i)*time.Minute), fmt.Sprint("item_", i), "shared"))
		}
		mustSave(t, s, storedResponse("later", noon.Add(time.Microsecond), "item_later", "shared"), storedResponse("never", time.Time{}, "item_never"))
		s.pruneExpiredResponses()
		assert.EqualValues(t, 2, queryInt(t, s, "SELECT count(*) FROM llmhttp_responses"))
		assert.EqualValues(t, 3, queryInt(t, s, "SELECT count(*) FROM llmhttp_response_items"))
		found, err := s.LoadItems(t.Context(), "acme", []string{"item_1", "item_later", "item_never", "shared"}, math.MaxInt)
		require.NoError(t, err)
		assert.Len(t, found, 3)
		deleted, err := s.PruneResponses(t.Context())
		require.NoError(t, err)
		assert.Zero(t, deleted)
	})
}

func TestStore_ConcurrentPrunes(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		const n = 3 * pruneResponsesBatch
		for i := range n {
			mustSave(t, stores[0], storedResponse(fmt.Sprint("old_", i), noon.Add(-time.Hour), fmt.Sprint("item_", i)))
		}
		var running sync.WaitGroup
		for _, s := range stores {
			running.Go(func() {
				_, err := s.PruneResponses(t.Context())
				assert.NoError(t, err)
			})
		}
		running.Wait()
		_, err := stores[0].PruneResponses(t.Context()) // deletes the rows that both skipped because the other had locked them
		require.NoError(t, err)
		assert.Zero(t, queryInt(t, stores[0], "SELECT count(*) FROM llmhttp_responses"))
		assert.Zero(t, queryInt(t, stores[0], "SELECT count(*) FROM llmhttp_response_items"))
	})
}

func TestStore_DamagedResponse(t *testing.T) {
	s := openStore(t, ":memory:", nil)
	mustSave(t, s, storedResponse("resp", time.Time{}, "a"))
	_, err := s.db.write.Exec("UPDATE llmhttp_responses SET data = x'03'")
	require.NoError(t, err)
	_, err = s.LoadResponse(t.Context(), "acme", "resp")
	assert.ErrorIs(t, err, errResponseFormat)
}

// An account that stores more than it may loses its oldest responses, and no others do.
func TestStore_MaxResponseBytes(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{MaxResponseBytes: 10_000, Logger: discardLogger})
		save := func(account string, i, size int) error {
			r := storedResponse(fmt.Sprint("resp_", i), time.Time{}, fmt.Sprint("item_", i))
			r.Account, r.Created = account, noon.Add(time.Duration(i)*time.Second)
			r.Output[0].Body = append(r.Output[0].Body, make([]byte, size)...)
			return s.SaveResponse(t.Context(), r)
		}
		require.NoError(t, save("other", 0, 9000))
		for i := range 100 {
			require.NoError(t, save("acme", i, 1000-i%100))
			assert.LessOrEqual(t, queryInt(t, s, "SELECT sum(bytes) FROM llmhttp_response_bytes WHERE account = 'acme'"), int64(10_000))
		}
		has := func(account string, i int) bool {
			_, err := s.LoadResponse(t.Context(), account, fmt.Sprint("resp_", i))
			return err == nil
		}
		assert.True(t, has("acme", 99))
		assert.True(t, has("acme", 91))
		assert.False(t, has("acme", 80))
		assert.True(t, has("other", 0))
		count := queryInt(t, s, "SELECT count(*) FROM llmhttp_responses WHERE account = 'acme'")
		assert.Equal(t, count, queryInt(t, s, "SELECT count(*) FROM llmhttp_response_items WHERE account = 'acme'"))

		assert.ErrorContains(t, save("acme", 100, 10_000), "the maximum is 10000")
		assert.True(t, has("acme", 99), "one that is refused takes no place")
		for i := range 500 { // more than one statement deletes
			require.NoError(t, save("small", i, 0))
		}
		require.NoError(t, save("small", 500, 9960))
		assert.EqualValues(t, 1, queryInt(t, s, "SELECT count(*) FROM llmhttp_responses WHERE account = 'small'"))
		unlimited := openStore(t, ":memory:", &Options{MaxResponseBytes: -1, Logger: discardLogger})
		mustSave(t, unlimited, storedResponse("resp", time.Time{}, "item"))
	})
}

// Items are loaded without the response that they are in, which may be large.
func TestStore_LoadsItemsAlone(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{Logger: discardLogger})
		var ids []string
		for i := range 20 {
			r := storedResponse(fmt.Sprint("resp_", i), time.Time{}, fmt.Sprint("small_", i), fmt.Sprint("large_", i))
			r.Body = bytes.Repeat([]byte("b"), 1<<20)
			r.Output[1].Body = bytes.Repeat([]byte("l"), 4<<20)
			mustSave(t, s, r)
			ids = append(ids, r.Output[0].ID)
		}
		var found []responsestore.Item
		allocated := allocatedBytes(func() {
			var err error
			found, err = s.LoadItems(t.Context(), "acme", ids, 1<<20)
			require.NoError(t, err)
		})
		assert.Len(t, found, 20)
		assert.Less(t, allocated, uint64(4<<20))
		allocated = allocatedBytes(func() {
			_, err := s.LoadItems(t.Context(), "acme", append(ids, "large_1", "large_2"), 1<<20)
			assert.ErrorIs(t, err, responsestore.ErrItemsTooLarge)
			_, err = s.LoadTurn(t.Context(), "acme", "resp_1", 1<<20)
			assert.ErrorIs(t, err, responsestore.ErrItemsTooLarge)
		})
		assert.Less(t, allocated, uint64(4<<20), "what is too large is not loaded")
		_, err := s.db.write.Exec("UPDATE llmhttp_responses SET expires = 1")
		require.NoError(t, err)
		allocated = allocatedBytes(func() {
			n, err := s.PruneResponses(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 20, n)
		})
		assert.Less(t, allocated, uint64(4<<20), "what is deleted is not loaded")
	})
}

// allocatedBytes returns how many bytes f allocates.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// IDs that the database cannot store as they are come back unchanged.
func TestStore_UnusualItemIDs(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{Logger: discardLogger})
		ids := []string{"", strings.Repeat("long", 1000), "\xff\x00", `\x41`, "plain", "plain"}
		r := storedResponse("resp", time.Time{}, ids...)
		r.Previous = "\xff" + strings.Repeat("p", 1000)
		r.Output[0].Body = []byte{}
		mustSave(t, s, r)
		got, err := s.LoadResponse(t.Context(), "acme", "resp")
		require.NoError(t, err)
		assert.Equal(t, r.Previous, got.Previous)
		for i := range ids {
			assert.Equal(t, r.Output[i].ID, got.Output[i].ID)
			assert.Equal(t, string(r.Output[i].Body), string(got.Output[i].Body))
		}
		found, err := s.LoadItems(t.Context(), "acme", ids[:5], math.MaxInt)
		require.NoError(t, err)
		assert.Len(t, found, 5)
		for _, item := range found {
			assert.Contains(t, ids, item.ID)
		}
	})
}

// serveResponses serves the Responses API until the process is killed.
func serveResponses(s *Store) int {
	h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("acme"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{responses.New(&responses.Options{Store: s})},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(l.Addr())
	fmt.Println(http.Serve(l, h))
	return 1
}

// TestStore_KilledServerLosesNoResponse kills a server while clients request responses.
// Every response that a client has seen complete must be stored.
func TestStore_KilledServerLosesNoResponse(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		c := startChild(t, roleServe, dsn)
		address := c.next()
		require.Contains(t, address, "127.0.0.1:")
		var (
			mu   sync.Mutex
			seen []string
		)
		var running sync.WaitGroup
		for i := range 4 {
			running.Go(func() {
				for {
					id := completedResponse(address, i%2 == 0)
					if id == "" {
						return // killed
					}
					mu.Lock()
					if seen = append(seen, id); len(seen) == 200 {
						assert.NoError(t, c.Process.Kill())
					}
					mu.Unlock()
				}
			})
		}
		running.Wait()
		require.GreaterOrEqual(t, len(seen), 200)
		s := openStore(t, dsn, nil)
		for _, id := range seen {
			r, err := s.LoadResponse(t.Context(), "acme", id)
			if assert.NoError(t, err, id) {
				found, err := s.LoadItems(t.Context(), "acme", []string{r.Output[0].ID}, math.MaxInt)
				assert.NoError(t, err)
				assert.Len(t, found, 1)
			}
		}
		t.Logf("%d responses were completed, and %d are stored", len(seen), queryInt(t, s, "SELECT count(*) FROM llmhttp_responses"))
	})
}

// completedResponse requests a response and returns its ID when it is complete, or
// "" if the server does not complete it.
func completedResponse(address string, stream bool) string {
	body := fmt.Sprintf(`{"model":%q,"input":"Hello there","stream":%t}`, memory.ModelChat, stream)
	resp, err := http.Post("http://"+address+"/v1/responses", "application/json", strings.NewReader(body))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var event struct {
		ID, Type string
		Response struct{ ID string }
	}
	if !stream {
		if json.NewDecoder(resp.Body).Decode(&event) != nil {
			return ""
		}
		return event.ID
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return ""
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if ok && json.Unmarshal([]byte(data), &event) == nil && event.Type == "response.completed" {
			_, _ = io.Copy(io.Discard, lines)
			return event.Response.ID
		}
	}
}

// An item that several responses have is found as long as one of them is stored.
func TestStore_SharedItem(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		var ids []string
		for i := range 5 {
			ids = append(ids, fmt.Sprint("resp_", i))
			mustSave(t, s, storedResponse(ids[i], time.Time{}, "shared", fmt.Sprint("own_", i)))
		}
		for _, id := range slices.Backward(ids) {
			found, err := s.LoadItems(t.Context(), "acme", []string{"shared"}, math.MaxInt)
			require.NoError(t, err)
			assert.Len(t, found, 1)
			require.NoError(t, s.DeleteResponse(t.Context(), "acme", id))
		}
		found, err := s.LoadItems(t.Context(), "acme", []string{"shared"}, math.MaxInt)
		require.NoError(t, err)
		assert.Empty(t, found)
	})
}
