import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A HDFS of one name node and a data node in this process, until its standard input ends. */
public class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("dfs.namenode.http-address", "127.0.0.1:0");
        configuration.set("dfs.datanode.address", "127.0.0.1:0");
        configuration.set("dfs.datanode.http.address", "127.0.0.1:0");
        configuration.set("dfs.datanode.ipc.address", "127.0.0.1:0");
        // The builder gives a data node ten seconds to start; waitActive has no such end.
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, new File(arguments[0]))
            .numDataNodes(0).build();
        cluster.startDataNodes(configuration, 1, true, null, null);
        cluster.waitActive();
        System.out.println("hdfs://127.0.0.1:" + cluster.getNameNodePort());
        while (System.in.read() >= 0) { }
        cluster.shutdown();
    }
}
