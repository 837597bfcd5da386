// The lab's server in Node.js: the http module alone.
//
//     node server.js PORT WORKLOAD PROCESSES
//
// With one process there is no cluster module in the way; with several, its primary accepts and hands out connections in turn.
'use strict';

const cluster = require('node:cluster');
const http = require('node:http');

const [port, workload, processes] = process.argv.slice(2);

const workloads = {
  status(request, response) {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify({ status: 'OK' }));
  },
};

if (!Object.hasOwn(workloads, workload)) {
  console.error(`unknown workload ${workload}`);
  process.exit(2);
}

if (Number(processes) > 1 && cluster.isPrimary) {
  for (let i = 0; i < Number(processes); i += 1) {
    cluster.fork();
  }
  cluster.on('exit', () => cluster.fork());
  process.on('SIGTERM', () => process.exit(0));
} else {
  const server = http.createServer(workloads[workload]);
  server.keepAliveTimeout = 75_000;
  server.listen({ port: Number(port), host: '127.0.0.1', backlog: 4096 });
  process.on('SIGTERM', () => process.exit(0));
}
