import org.apache.kafka.tools.AclCommand;

/** Runs Kafka's tool for ACLs several times in one JVM: an argument is a call, with its own arguments in lines. */
public class AclCommands {
    public static void main(String[] calls) {
        for (String call : calls) {
            // Ends the process with 1 on an error.
            AclCommand.main(call.split("\n"));
        }
    }
}
