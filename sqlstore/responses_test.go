package sqlstore

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
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
)

func storedResponse(id string, expires time.Time, items ...string) *llmhttp.StoredResponse {
	r := &llmhttp.StoredResponse{ID: id, Account: "acme", Created: noon, Expires: expires, Body: []byte(`{"id":"` + id + `"}`)}
	for _, item := range items {
		r.Output = append(r.Output, llmhttp.StoredItem{ID: item, Body: []byte(`{"id":"` + item + `"}`)})
	}
	return r
}

func mustSave(t testing.TB, s *Store, responses ...*llmhttp.StoredResponse) {
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
		found, err := s.LoadItems(t.Context(), "acme", []string{"item_1", "item_later", "item_never", "shared"})
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

func TestDecodeResponse_Damaged(t *testing.T) {
	data := encodeResponse(storedResponse("resp", time.Time{}, "a", "b"))
	require.NoError(t, decodeResponse(data, new(llmhttp.StoredResponse)))
	for n := range data {
		assert.ErrorIs(t, decodeResponse(data[:n], new(llmhttp.StoredResponse)), errResponseFormat, n)
	}
	assert.ErrorIs(t, decodeResponse(append(data, 0), new(llmhttp.StoredResponse)), errResponseFormat)
	data[0]++
	assert.ErrorIs(t, decodeResponse(data, new(llmhttp.StoredResponse)), errResponseFormat)
	huge := []byte{responseFormat, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	assert.ErrorIs(t, decodeResponse(huge, new(llmhttp.StoredResponse)), errResponseFormat)
}

func TestStore_DamagedResponse(t *testing.T) {
	s := openStore(t, ":memory:", nil)
	mustSave(t, s, storedResponse("resp", time.Time{}, "a"))
	_, err := s.db.write.Exec("UPDATE llmhttp_responses SET data = x'02'")
	require.NoError(t, err)
	_, err = s.LoadResponse(t.Context(), "acme", "resp")
	assert.ErrorIs(t, err, errResponseFormat)
	_, err = s.LoadItems(t.Context(), "acme", []string{"a"})
	assert.ErrorIs(t, err, errResponseFormat)
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
				found, err := s.LoadItems(t.Context(), "acme", []string{r.Output[0].ID})
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
			found, err := s.LoadItems(t.Context(), "acme", []string{"shared"})
			require.NoError(t, err)
			assert.Len(t, found, 1)
			require.NoError(t, s.DeleteResponse(t.Context(), "acme", id))
		}
		found, err := s.LoadItems(t.Context(), "acme", []string{"shared"})
		require.NoError(t, err)
		assert.Empty(t, found)
	})
}
