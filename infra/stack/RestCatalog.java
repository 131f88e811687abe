import java.net.InetSocketAddress;
import java.util.Map;
import java.util.TreeMap;

import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.util.Callback;

/**
 * A REST catalog: Iceberg's own reference servlet over any Iceberg catalog.
 *
 * <p>The catalog is configured as the image apache/iceberg-rest-fixture is, by variables of the environment: CATALOG_URI
 * is `uri`, CATALOG_JDBC_PASSWORD `jdbc.password`, CATALOG_IO__IMPL `io-impl`. It listens on REST_PORT of REST_HOST
 * (127.0.0.1), and who calls has to know REST_TOKEN. Nothing is taken from the command line, which every user of the
 * machine can read.
 */
public final class RestCatalog {
    private RestCatalog() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> environment = System.getenv();
        RESTCatalogAdapter adapter = new RESTCatalogAdapter(
                CatalogUtil.buildIcebergCatalog(environment.get("CATALOG_NAME"), properties(environment), null));
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
        Server server = new Server(new InetSocketAddress(
                environment.getOrDefault("REST_HOST", "127.0.0.1"), Integer.parseInt(environment.get("REST_PORT"))));
        server.setHandler(new Guard(environment.get("REST_TOKEN"), context));
        server.start();
        server.join();
    }

    private static Map<String, String> properties(Map<String, String> environment) {
        Map<String, String> found = new TreeMap<>();
        environment.forEach((name, value) -> {
            if (name.startsWith("CATALOG_") && !name.equals("CATALOG_NAME")) {
                String key = name.substring("CATALOG_".length()).replace("__", "-").replace("_", ".");
                found.put(key.toLowerCase(java.util.Locale.ROOT), value);
            }
        });
        return found;
    }

    /** Lets nobody through without the token. */
    private static final class Guard extends Handler.Wrapper {
        private final String expected;

        Guard(String token, Handler guarded) {
            super(guarded);
            expected = "Bearer " + token;
        }

        @Override
        public boolean handle(Request request, Response response, Callback callback) throws Exception {
            if (expected.equals(request.getHeaders().get(HttpHeader.AUTHORIZATION))) {
                return super.handle(request, response, callback);
            }
            Response.writeError(request, response, callback, 401);
            return true;
        }
    }
}
