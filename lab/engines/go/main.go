// Command hayate-lab-go is the lab's server in Go: net/http alone, as a programmer of Go would write the lab's workloads.
//
//	hayate-lab-go -listen 127.0.0.1:8080 -workload status|users
//
// The users are in a database that the environment names: USERS_GO is a driver's name, a colon, and its data source name.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/mattn/go-sqlite3"
)

// maxConnections to the database: more than one process of PHP would have, fewer than a server allows.
const maxConnections = 32

type user struct {
	ID        int    `json:"id"`
	Name      string `json:"name"`
	Email     string `json:"email"`
	CreatedAt string `json:"created_at"`
}

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	workload := flag.String("workload", "status", "status or users")
	version := flag.Bool("version", false, "print Go's version and those of the drivers")
	flag.Parse()
	if *version {
		printVersions()
		return
	}
	mux := http.NewServeMux()
	switch *workload {
	case "status":
		mux.HandleFunc("GET /{$}", status)
	case "users":
		database, err := open(os.Getenv("USERS_GO"))
		if err != nil {
			log.Fatal(err)
		}
		mux.HandleFunc("GET /users/{id}", users(database))
	default:
		log.Fatalf("unknown workload %q", *workload)
	}
	server := &http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: 30 * time.Second}
	done := make(chan struct{})
	go stop(server, done)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-done
}

// stop ends the server in order when it is asked to.
func stop(server *http.Server, done chan<- struct{}) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		log.Print(err)
	}
	close(done)
}

func status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// An error here means that the client left.
	_, _ = w.Write([]byte(`{"status":"OK"}`))
}

// open prepares a pool of connections. Opening the first is left to the first request.
func open(source string) (*sql.DB, error) {
	driver, name, found := strings.Cut(source, ":")
	if !found {
		return nil, fmt.Errorf("USERS_GO is %q, should be driver:name", source)
	}
	database, err := sql.Open(driver, name)
	if err != nil {
		return nil, err
	}
	database.SetMaxOpenConns(maxConnections)
	database.SetMaxIdleConns(maxConnections)
	return database, nil
}

// users answers with one user. Whether a statement is prepared by the server or put together by the driver is said by the data
// source name; see the driver's interpolateParams.
func users(database *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		id, err := strconv.Atoi(r.PathValue("id"))
		if err == nil {
			var found user
			row := database.QueryRowContext(r.Context(), "SELECT id, name, email, created_at FROM users WHERE id = ?", id)
			err = row.Scan(&found.ID, &found.Name, &found.Email, &found.CreatedAt)
			if err == nil {
				var body []byte
				if body, err = json.Marshal(found); err == nil {
					_, _ = w.Write(body)
					return
				}
			}
			if !errors.Is(err, sql.ErrNoRows) {
				log.Print(err)
				http.Error(w, `{"error":"database"}`, http.StatusInternalServerError)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":"no such user"}`))
	}
}

func printVersions() {
	fmt.Println("Go", strings.TrimPrefix(runtime.Version(), "go"))
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			fmt.Println(dependency.Path, dependency.Version)
		}
	}
}
